"""Runs a Python program in this process, as the interpreter itself would.

It runs in this process's own `__main__` module and not in one that is there for a time, as `runpy` has it: what it
defines can be pickled, the workers that `multiprocessing` spawns find it, and it is there as long as the process. The
interpreter stays, with its options, its pid and its signals. What the program can tell: modules that this package has
imported are there, its report is open, and its frames are below the program's. Source: CPython 3.10 to 3.13,
`Modules/main.c` and `Python/pythonrun.c`.
"""

from __future__ import annotations

import builtins
import io
import os
import pkgutil
import runpy
import sys
from collections.abc import Callable
from importlib.machinery import BuiltinImporter, SourceFileLoader
from types import CodeType, TracebackType
from typing import Any

from tfgpu_magic.command.target import PythonProgram


def missing(program: PythonProgram) -> str:
    """Return what Python says of a script that cannot be read; empty if it can."""
    if program.kind != "script" or pkgutil.get_importer(program.what) is not None:
        return ""
    try:
        with io.open_code(_absolute(program.what)):
            return ""
    except OSError as error:
        return f"can't open file {_absolute(program.what)!r}: [Errno {error.errno}] {error.strerror}"


def execute(program: PythonProgram) -> int:
    """Run a program to its end, and return 0: the process is to end then, but with `python -i`.

    Raises:
        BaseException: what the program raises and does not catch; Python then reports it without the frames of this
            package, and sets the exit status.
    """
    run = {"script": _script, "-m": _module, "-c": _code}[program.kind]
    try:
        run(program.what, list(program.arguments))
    except BaseException as error:
        sys.excepthook = _reporting_only(error.__traceback__, sys.excepthook)
        raise
    return 0


def _script(path: str, arguments: list[str]) -> None:
    sys.argv = [path, *arguments]
    if pkgutil.get_importer(path) is not None:  # a directory or a zip file, in which is searched whatever the options
        sys.path.insert(0, _absolute(path))
        _main(__loader__=BuiltinImporter)
        _run_as_main("__main__", alter_argv=False)
        return
    _search_first(os.path.dirname(os.path.realpath(path)))  # noqa: PTH120  # as a text, "" too
    full = _absolute(path)
    names = _main(__loader__=SourceFileLoader("__main__", full), __file__=full, __cached__=None)
    exec(_compiled(full), names)  # noqa: S102  # the user's program


def _module(name: str, arguments: list[str]) -> None:
    sys.argv = ["-m", *arguments]
    _search_first(os.getcwd())  # noqa: PTH109
    _main(__loader__=BuiltinImporter)
    _run_as_main(name, alter_argv=True)


def _code(code: str, arguments: list[str]) -> None:
    sys.argv = ["-c", *arguments]
    _search_first("")
    exec(compile(code, "<string>", "exec", dont_inherit=True), _main(__loader__=BuiltinImporter))  # noqa: S102


_run_as_main: Callable[..., object] = runpy._run_module_as_main  # type: ignore[attr-defined]
"""What Python itself calls for ``-m``, for a directory and for a zip file."""


def _compiled(path: str) -> CodeType:
    with io.open_code(path) as file:
        read: CodeType | None = pkgutil.read_code(file)  # of a .pyc file
    if read is not None:
        return read
    with io.open_code(path) as file:
        # Not inherited: this module's own `from __future__` is not the program's.
        return compile(file.read(), path, "exec", dont_inherit=True)


def _main(**own: Any) -> dict[str, Any]:
    """Return the names of `__main__`, which has nothing of this package any more."""
    names = sys.modules["__main__"].__dict__
    names.clear()
    names |= {"__name__": "__main__", "__doc__": None, "__package__": None, "__loader__": None, "__spec__": None}
    names |= {"__annotations__": {}, "__builtins__": builtins, **own}
    return names


def _search_first(folder: str) -> None:
    """Put a folder first on the search path of modules, where `main` has removed the first entry."""
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):
        sys.path.insert(0, folder)


def _absolute(path: str) -> str:
    """Return a path as Python shows it in tracebacks and in `__file__`: absolute, and else as it was written."""
    return os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118


def _reporting_only(
    traceback: TracebackType | None, hook: Callable[[type[BaseException], BaseException, TracebackType | None], object]
) -> Callable[[type[BaseException], BaseException, TracebackType | None], object]:
    """Return an exception hook that calls another one with what of a traceback is not this module's."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next

    def report(kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
        sys.excepthook = hook
        hook(kind, error.with_traceback(traceback), traceback)

    return report
