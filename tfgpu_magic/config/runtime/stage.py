"""How far TensorFlow has come in this process, told without moving it.

Source: TensorFlow 2.16 to 2.21, `eager/context.py`; there is no public way to ask.
"""

from __future__ import annotations

import sys
from typing import Any

from tfgpu_magic.config import cuda
from tfgpu_magic.config.process_state import Stage

OLDEST = (2, 16)
"""The first version that this was tried with."""

_CONTEXT = "tensorflow.python.eager.context"


def current_stage() -> Stage:
    """How far TensorFlow has come."""
    if tensorflow() is None:
        return Stage.ABSENT
    context = eager_context()
    # A release that names them otherwise is taken for one that is not ready, as long as it makes no CUDA context.
    if getattr(context, "_initialized", False) or getattr(context, "_context_handle", None) is not None:
        return Stage.READY
    # A context that TensorFlow does not know of: allocators made behind its back, or another library's. None can tell.
    if cuda.has_context():
        return Stage.POISONED
    return Stage.LISTED if listed() or cuda.initialised() else Stage.IMPORTED


def tensorflow() -> Any | None:
    """The TensorFlow that this process has imported whole, if it has."""
    module = sys.modules.get("tensorflow")
    return module if hasattr(module, "__version__") else None


def too_old() -> str | None:
    """The version of TensorFlow, where it is older than `OLDEST`."""
    version = str(getattr(tensorflow(), "__version__", ""))
    release = tuple(int(number) for number in version.split(".")[:2] if number.isdigit())
    return version if len(release) == len(OLDEST) and release < OLDEST else None


def importing() -> bool:
    """Whether TensorFlow is being imported at this moment, by another thread or further up in this one."""
    return "tensorflow" in sys.modules and tensorflow() is None


def eager_context() -> Any | None:
    """TensorFlow's context object; it has one before it uses a GPU."""
    return getattr(sys.modules.get(_CONTEXT), "_context", None)


def listed() -> bool:
    """Whether TensorFlow has made its list of devices, which it then keeps."""
    return getattr(eager_context(), "_physical_devices", None) is not None


def frozen() -> bool:
    """Whether the list of GPUs is made, CUDA's or TensorFlow's, so that variables name others in vain."""
    return cuda.initialised() or listed()


def forked() -> bool:
    """Whether CUDA was running when this process was forked from its parent, and can therefore not be used in it."""
    context = eager_context()
    gpus = [device for device in getattr(context, "_physical_devices", None) or () if device.device_type == "GPU"]
    return bool(gpus) and not cuda.initialised()
