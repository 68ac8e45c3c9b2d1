"""The end of a call's process: its files, threads and exit functions have what the end of a program gives them.

All in bounded time, and without the end of the interpreter, in which TensorFlow takes a second to free what the system
frees anyway.
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


def shut_down(seconds: float) -> None:
    """Write what waits in buffers, wait for threads, run exit functions, and let go of what the program has made.

    Args:
        seconds: how long threads that are no daemons may go on; then they are cut off, which is said.
    """
    _flush_files()
    _wait_for_threads(seconds)
    atexit._run_exitfuncs()
    _let_go()
    _flush_files()


def _flush_files() -> None:
    """Flush every file that is open, the outer ones first: what they give away waits in the inner ones' buffers."""
    # By type, and the root of them all in C: isinstance() asks a stand-in for what it stands for, which may wake it.
    files = [found for found in gc.get_objects() if issubclass(type(found), _FILE)]
    for file in sorted(files, key=_depth):
        with contextlib.suppress(Exception):  # closed, or to read from; whatever somebody's own flush() raises
            file.flush()


def _depth(file: Any) -> int:
    return 0 if isinstance(file, io.TextIOBase) else 2 if isinstance(file, io.BufferedWriter | io.BufferedRandom) else 1


def _wait_for_threads(seconds: float) -> None:
    if not _others():
        return
    # Python's own waits without end, and tells pools of threads to go home.
    waiting = threading.Thread(target=threading._shutdown, daemon=True)  # type: ignore[attr-defined]
    waiting.start()
    waiting.join(seconds)
    late = [thread.name for thread in _others()]
    if waiting.is_alive() and late:
        print(
            f"Cut off, because the call had ended {seconds:g} s before: {', '.join(late)}. "
            "A thread that the call joins is waited for.",
            file=sys.stderr,
        )


def _others() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if not (one.daemon or one is threading.main_thread())]


def _let_go() -> None:
    """Have the program's objects end, so that they write what they write then."""
    sys.last_value = sys.last_traceback = None
    names: dict[str, Any] = vars(sys.modules["__main__"])
    for name in [name for name, value in names.items() if not isinstance(value, _LASTING)]:
        if not name.startswith("__"):
            del names[name]
    gc.collect()
