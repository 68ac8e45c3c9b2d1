"""What TensorFlow's import goes by, and so a fork server that has imported it: when that changes, it is stale."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from tfgpu_magic.config.process_state import VARIABLES
from tfgpu_magic.config.runtime import environment

_NAMES = frozenset({"HOME"})  # where keras.json is
_PREFIXES = (
    "H5PY_", "HDF5_", "KERAS_", "KMP_", "LD_", "MKL_", "OMP_", "OPENBLAS_", "PROTOCOL_BUFFERS_", "PYTHON", "TF_",
)  # fmt: skip
_SET_BY_LIBRARIES = frozenset({"HDF5_PLUGIN_PATH", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"})  # at their own import
_PACKAGES = ("tensorflow", "keras")


def now() -> dict[str, object]:
    """The variables that count when TensorFlow is imported, and which TensorFlow that would be."""
    return {**variables(environment()), **{name: _installed(name) for name in _PACKAGES}}


def variables(everything: Mapping[str, str]) -> dict[str, str]:
    """Of all variables those that count at an import; in a call's own process all others are set in time."""
    theirs = {*VARIABLES, *_SET_BY_LIBRARIES}
    return {
        name: value
        for name, value in everything.items()
        if (name in _NAMES or name.startswith(_PREFIXES)) and name not in theirs
    }


def standard_first(path: Sequence[str]) -> list[str]:
    """A search path on which no file of the user's stands for a module of Python's own, such as ``select.py``.

    A kernel has imported Python's own before it looks beside the notebook.
    """
    home = str(Path(os.__file__).parent)
    return sorted(path, key=lambda entry: entry not in (home, f"{home}/lib-dynload"))


def _installed(package: str) -> tuple[str, int, int] | None:
    """Where a package is, and which: an installer writes its files anew."""
    with contextlib.suppress(ImportError, ValueError, AttributeError, OSError):
        origin = str(getattr(find_spec(package), "origin", None))
        found = Path(origin).stat()
        return origin, found.st_mtime_ns, found.st_ino
    return None
