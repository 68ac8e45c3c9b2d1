"""Has TensorFlow raise an error in place of what it would do with a GPU, while the process's GPU state is away.

All of its eager operations and functions pass a few functions of its C module, and what is read of a tensor passes two
methods. What is placed on the CPU by `tf.device("CPU:0")`, and takes only what is there, goes on. What C code does by
itself cannot be refused: to read a tensor through its buffer (`numpy.asarray(tensor)`), or to free it.
Source: TensorFlow 2.16 to 2.21, `eager/execute.py`, `framework/ops.py`, and the generated `ops/gen_*_ops.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from tfgpu_magic.errors import Refused
from tfgpu_magic.frameworks.tensorflow.devices import current_stage
from tfgpu_magic.policy.process_state import Stage

Replace = Callable[[object, str, object], None]
_CALLS = ("TFE_Py_Execute", "TFE_Py_ExecuteCancelable", "TFE_Py_FastPathExecute")


def withhold(replace: Replace, why: str) -> None:
    """Refuse what TensorFlow would do with a GPU, if it uses one.

    Args:
        replace: puts a value in the place of an attribute.
        why: the error's text.
    """
    if current_stage() is not Stage.READY:
        return
    calls, tensors = sys.modules["tensorflow.python.pywrap_tfe"], sys.modules["tensorflow.python.framework.ops"]
    for name in _CALLS:
        replace(calls, name, _operation(getattr(calls, name), why))
    base = tensors._EagerTensorBase
    for name in ("_numpy", "_copy_nograd"):
        replace(base, name, _reading(getattr(base, name), why))


def _operation(call: Callable[..., Any], why: str) -> Callable[..., Any]:
    def withheld(context: Any, *args: Any) -> Any:
        # The fast one has the context first, the others its handle, and then the device.
        device, inputs = (context.device_name, args) if hasattr(context, "device_name") else (args[0], args[2])
        if "CPU" not in (device or "") or _any_on_gpu(inputs):
            raise Refused(why, verdict="")
        return call(context, *args)

    return withheld


def _reading(method: Callable[..., Any], why: str) -> Callable[..., Any]:
    def withheld(tensor: Any, ctx: Any = None, device_name: str | None = None) -> Any:
        if "GPU" in tensor.backing_device or "GPU" in (device_name or ""):
            raise Refused(why, verdict="")
        return method(tensor) if ctx is device_name is None else method(tensor, ctx, device_name)

    return withheld


def _any_on_gpu(inputs: Iterable[Any]) -> bool:
    flat = (one for some in inputs for one in (some if isinstance(some, (list, tuple)) else (some,)))
    devices = (str(getattr(one, "device", "")) for one in flat)  # other libraries' are no text, and named otherwise
    return any("GPU" in device or "cuda" in device for device in devices)
