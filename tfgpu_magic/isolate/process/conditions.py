"""What TensorFlow's import depends on: when it changes, a fork server that has imported TensorFlow is stale."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from tfgpu_magic.config.process_state import VARIABLES
from tfgpu_magic.config.runtime import environment

_NAMES = frozenset({"HOME"})  # the directory of keras.json
_PREFIXES = (
    "H5PY_", "HDF5_", "KERAS_", "KMP_", "LD_", "MKL_", "OMP_", "OPENBLAS_", "PROTOCOL_BUFFERS_", "PYTHON", "TF_",
)  # fmt: skip
_SET_BY_LIBRARIES = frozenset({"HDF5_PLUGIN_PATH", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"})  # at their own import
_PACKAGES = ("tensorflow", "keras")


def now() -> dict[str, object]:
    """Return the variables that matter when TensorFlow is imported, and which installed TensorFlow that would be."""
    return {**variables(environment()), **{name: _installed(name) for name in _PACKAGES}}


def variables(everything: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that matter at an import; all others are set in the worker process early enough."""
    set_later = {*VARIABLES, *_SET_BY_LIBRARIES}
    return {
        name: value
        for name, value in everything.items()
        if (name in _NAMES or name.startswith(_PREFIXES)) and name not in set_later
    }


def standard_first(path: Sequence[str]) -> list[str]:
    """Sort a search path so that no file of the user's, such as ``select.py``, hides a standard library module.

    A kernel has imported the standard library's modules before it looks beside the notebook.
    """
    library = str(Path(os.__file__).parent)
    return sorted(path, key=lambda entry: entry not in (library, f"{library}/lib-dynload"))


def _installed(package: str) -> tuple[str, int, int] | None:
    """Return where a package is, and the identity of its file, which an installer writes anew."""
    with contextlib.suppress(ImportError, ValueError, AttributeError, OSError):
        origin = str(getattr(find_spec(package), "origin", None))
        found = Path(origin).stat()
        return origin, found.st_mtime_ns, found.st_ino
    return None
