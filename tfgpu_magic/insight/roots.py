"""The places in which Python keeps objects alive, in the order in which their names serve people best."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType, ModuleType
from typing import Any

from tfgpu_magic.frameworks import keras
from tfgpu_magic.frameworks.objects import is_users_module, namespace
from tfgpu_magic.insight import shell
from tfgpu_magic.insight.children import Child, of_frame
from tfgpu_magic.insight.names import Scope, Step


def closed() -> Iterator[object]:
    """Return what a walk does not enter: modules and the notebook, whose names are roots by themselves, and IPython."""
    here: Any = shell.shell()
    for module in list(sys.modules.values()):
        yield namespace(module)
    yield sys.modules
    if here is not None:
        yield from (here, here.user_ns, here.user_ns_hidden, here.user_ns.get("_oh"), here.InteractiveTB)
        yield from (here.displayhook, here.last_execution_result)


def named() -> Iterator[Child]:
    """Return what the notebook's names have, models first: their parts are called by their names."""
    names = list(shell.names().items())
    for name, value in sorted(names, key=lambda item: not keras.is_model(type(item[1]))):
        yield Step(name), value


def kept() -> Iterator[Child]:
    """Return the results and errors that IPython and Python keep."""
    for name, value in shell.results():
        yield Step(name) if name else Step(scope=Scope("result")), value
    for error in shell.errors():
        yield Step(scope=Scope("error")), error


def running(*, users: bool) -> Iterator[Child]:
    """Return the variables of the functions that run now, in all threads.

    Args:
        users: whether those of the user's own functions are meant, or those of packages.
    """
    for innermost in list(sys._current_frames().values()):
        frame: FrameType | None = innermost
        while frame is not None:
            module = frame.f_globals.get("__name__")
            ours = type(module) is str and module.startswith(f"{__name__.partition('.')[0]}.")
            if not ours and type(module) is str and is_users_module(module) == users:
                yield from of_frame(frame, "running")
            frame = frame.f_back


def modules() -> Iterator[Child]:
    """Return what the names of the user's own modules have, the notebook itself aside."""
    for name, module in list(sys.modules.items()):
        if type(module) is ModuleType and name != "__main__" and is_users_module(name):
            for own, value in list(namespace(module).items()):
                yield Step(f"{name}.{own}"), value
