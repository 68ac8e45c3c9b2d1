"""The end of a worker process: files, threads and exit functions are treated as at the end of a program.

It leaves out the end of the interpreter, in which TensorFlow takes a second to free what the system frees anyway.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import sys
import threading
from types import FunctionType, ModuleType
from typing import Any

_FILE: Any = io.FileIO.__mro__[-2]
_LASTING = (type, FunctionType, ModuleType)  # what a destructor may still need


def shut_down() -> None:
    """Flush buffers, wait for threads, run exit functions, and release what the program has made."""
    _flush_files()
    with contextlib.suppress(Exception):  # of a thread pool's own
        threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    _release()
    _flush_files()


def _flush_files() -> None:
    """Flush every open file, the outer ones first: what they write goes to the buffers of the inner ones."""
    # By type, and their base class in C: isinstance() asks a proxy for its target's class, which may load the target.
    files = [found for found in gc.get_objects() if issubclass(type(found), _FILE)]
    for file in sorted(files, key=_depth):
        with contextlib.suppress(Exception):  # closed, or to read from; whatever an object's own flush() raises
            file.flush()


def _depth(file: Any) -> int:
    return 0 if isinstance(file, io.TextIOBase) else 2 if isinstance(file, io.BufferedWriter | io.BufferedRandom) else 1


def _release() -> None:
    """Release the program's objects, so that their destructors write what they have to write."""
    sys.last_value = sys.last_traceback = None
    names: dict[str, Any] = vars(sys.modules["__main__"])
    for name in [name for name, value in names.items() if not isinstance(value, _LASTING)]:
        if not name.startswith("__"):
            del names[name]
    gc.collect()
