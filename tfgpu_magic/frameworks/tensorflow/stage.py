"""The stage of TensorFlow in this process, and the backend of Keras, found without changing or importing either.

Sources: TensorFlow 2.16 to 2.21, `eager/context.py`; there is no public way to ask. Keras 3,
`keras/src/backend/policy.py`: the variable outweighs the file, and the first import decides.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

from tfgpu_magic.frameworks import cuda
from tfgpu_magic.policy.process_state import Stage

OLDEST = (2, 16)
"""The oldest version that tfgpu_magic was tested with."""

_CONTEXT = "tensorflow.python.eager.context"

since: str | None = None
"""The cell that made TensorFlow use a GPU, as a phrase, if the cells are watched."""

_others: frozenset[str] = frozenset()
"""The GPUs on which something had a CUDA context when TensorFlow was imported, as far as that was noted."""


def current_stage() -> Stage:
    """Return TensorFlow's stage."""
    if tensorflow() is None:
        return Stage.ABSENT
    context = eager_context()
    # A release with other names for these counts as not ready, as long as it makes no CUDA context.
    if getattr(context, "_initialized", False) or getattr(context, "_context_handle", None) is not None:
        return Stage.READY
    # A context that is not TensorFlow's own: of allocators made by its internals, or of another library. It is
    # impossible to find out which, but of those that were there before TensorFlow was.
    if set(cuda.contexts()) - _others:
        return Stage.POISONED
    return Stage.LISTED if listed() or cuda.initialised() else Stage.IMPORTED


def note_import() -> None:
    """Note that TensorFlow is imported at this moment, so that the CUDA contexts that are there are others'."""
    global _others
    if getattr(getattr(sys.modules.get("tensorflow"), "__spec__", None), "_initializing", False):
        _others = frozenset(cuda.contexts())


def tensorflow() -> Any | None:
    """Return the TensorFlow module, if this process has imported it completely."""
    module = sys.modules.get("tensorflow")
    return module if hasattr(module, "__version__") else None


def too_old() -> str | None:
    """Return the version of TensorFlow, if it is older than `OLDEST`."""
    version = str(getattr(tensorflow(), "__version__", ""))
    release = tuple(int(number) for number in version.split(".")[:2] if number.isdigit())
    return version if len(release) == len(OLDEST) and release < OLDEST else None


def importing() -> bool:
    """Tell whether TensorFlow is being imported at this moment, by another thread or by a caller in this one."""
    return "tensorflow" in sys.modules and tensorflow() is None


def eager_context() -> Any | None:
    """Return TensorFlow's context object; it has one before it uses a GPU."""
    return getattr(sys.modules.get(_CONTEXT), "_context", None)


def context_class() -> Any | None:
    """Return the class of that object; TensorFlow has it from its import on."""
    return getattr(sys.modules.get(_CONTEXT), "Context", None)


def listed() -> bool:
    """Tell whether TensorFlow has made its list of devices, which it then keeps."""
    return getattr(eager_context(), "_physical_devices", None) is not None


def frozen() -> bool:
    """Tell whether the list of GPUs is made, CUDA's or TensorFlow's, so that variables have no effect on it."""
    return cuda.initialised() or listed()


def forked() -> bool:
    """Tell whether CUDA was running when this process was forked from its parent, so that it cannot be used here."""
    context = eager_context()
    gpus = [device for device in getattr(context, "_physical_devices", None) or () if device.device_type == "GPU"]
    return bool(gpus) and not cuda.initialised()


def other_backend() -> str | None:
    """Return Keras' backend if it is another than TensorFlow; None where it is TensorFlow, or not set."""
    config = sys.modules.get("keras.src.backend.config")
    backend = getattr(config, "_BACKEND", None) or os.environ.get("KERAS_BACKEND") or _from_file()
    return backend if isinstance(backend, str) and backend and backend != "tensorflow" else None


@functools.cache  # it is called every second; the content of the file at the first call counts
def _from_file() -> object:
    """Return the backend in `keras.json`; None where that cannot be read."""
    try:
        folder = Path(os.environ.get("KERAS_HOME") or Path("~/.keras").expanduser())
        return json.loads((folder / "keras.json").read_text()).get("backend")
    except (OSError, ValueError, AttributeError, RuntimeError):
        return None
