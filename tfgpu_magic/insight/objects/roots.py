"""Where Python and IPython keep objects alive: names, results, errors, running functions, and how these are dropped.

Sources: IPython 7.34 to 9, `core/displayhook.py` (`update_user_ns`, `flush`), `core/interactiveshell.py`
(`run_cell_async`, `_get_exc_info`), `core/ultratb.py` (`tb`). In a program without IPython there is none of it.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Container, Iterable, Iterator
from types import FrameType, ModuleType
from typing import Any

from tfgpu_magic.frameworks.objects import is_users_module, items, namespace
from tfgpu_magic.frameworks.tensorflow import keras
from tfgpu_magic.ground.process_kind import shell
from tfgpu_magic.insight.objects.names import Step
from tfgpu_magic.insight.objects.references import Child, of_frame

_CACHED = re.compile(r"_{1,3}|_\d+")
"""Names under which IPython keeps results."""

_UNDERSCORES = ("_", "__", "___")
_LAST = ("last_exc", "last_value", "last_traceback")
_OF_TRACEBACK = ("tb", "value", "evalue", "etype")
_OF_RESULT = ("result", "error_in_exec", "error_before_exec")


def notebook_names() -> dict[str, Any]:
    """Return the notebook's own names with their values, or those of the program's main module."""
    here = shell()
    if here is None:
        return dict(vars(sys.modules["__main__"]))
    hidden = here.user_ns_hidden
    return {name: value for name, value in items(here.user_ns) if not (name in hidden and hidden[name] is value)}


def kept_results() -> Iterator[tuple[str, Any]]:
    """Yield the results that IPython keeps, each after the expression that gives it, "" if none does."""
    here = shell()
    if here is None:
        return
    # The same result has several places, of which `Out` is the one that people know.
    found = [(f"Out[{number}]", value) for number, value in items(here.user_ns.get("_oh", {}))]
    for one in (here.user_ns, here.user_ns_hidden):
        found += [(name, value) for name, value in items(one) if _CACHED.fullmatch(name)]
    for owner, fields in ((here.displayhook, _UNDERSCORES), (here.last_execution_result, _OF_RESULT[:1])):
        found += [("", value) for value in _values(owner, fields)]
    yield from {id(value): (name, value) for name, value in reversed(found)}.values()


def kept_errors() -> Iterator[Any]:
    """Yield the errors and tracebacks that Python and IPython keep, and the one that is being handled."""
    here = shell()
    yield sys.exc_info()[1]
    yield from _values(sys, _LAST)
    if here is not None:
        yield from _values(here.InteractiveTB, _OF_TRACEBACK)
        yield from _values(here.last_execution_result, _OF_RESULT[1:])


def boundary() -> Iterator[object]:
    """Yield the objects that a walk does not enter: modules and the notebook, whose names are roots, and IPython."""
    here: Any = shell()
    for module in list(sys.modules.values()):
        yield namespace(module)
    yield sys.modules
    if here is not None:
        yield from (here, here.user_ns, here.user_ns_hidden, here.user_ns.get("_oh"), here.InteractiveTB)
        yield from (here.displayhook, here.last_execution_result)


def named_roots() -> Iterator[Child]:
    """Yield the values of the notebook's names, models first: their parts are called by their names."""
    for name, value in sorted(notebook_names().items(), key=lambda item: not keras.is_model(type(item[1]))):
        yield Step(name, root="name"), value


def kept_roots() -> Iterator[Child]:
    """Yield the results and errors that IPython and Python keep."""
    for name, value in kept_results():
        yield Step(name, "" if name else "the last cell's result, kept by IPython", root="result"), value
    for error in kept_errors():
        yield Step("", "kept by the last error", root="error"), error


def running_roots(*, users: bool) -> Iterator[Child]:
    """Yield the variables of the functions that run now, in all threads.

    Args:
        users: whether those of the user's own functions are meant, or those of packages.
    """
    for innermost in list(sys._current_frames().values()):
        frame: FrameType | None = innermost
        while frame is not None:
            module = frame.f_globals.get("__name__")
            ours = type(module) is str and module.startswith(f"{__name__.partition('.')[0]}.")
            if not ours and type(module) is str and is_users_module(module) == users:
                for step, value in of_frame(frame, ", which is running"):
                    yield step and step._replace(root="running"), value
            frame = frame.f_back


def module_roots() -> Iterator[Child]:
    """Yield the values of the names of the user's own modules, the notebook itself aside."""
    for name, module in list(sys.modules.items()):
        if type(module) is ModuleType and name != "__main__" and is_users_module(name):
            for own, value in list(namespace(module).items()):
                yield Step(f"{name}.{own}", root="module"), value


def delete_names(names: Iterable[str]) -> None:
    """Delete names of the notebook, or of the program's main module, as far as they exist."""
    here = shell()
    for one in [vars(sys.modules["__main__"])] if here is None else [here.user_ns, here.user_ns_hidden]:
        for name in names:
            one.pop(name, None)


def drop_results(unwanted: Container[int]) -> None:
    """Drop results that IPython keeps, by their ids. What the notebook's own names have stays."""
    here = shell()
    if here is None:
        return
    hidden, numbered = here.user_ns_hidden, here.user_ns.get("_oh", {})
    for name in [name for name, value in items(hidden) if _CACHED.fullmatch(name) and id(value) in unwanted]:
        value = hidden.pop(name)
        if here.user_ns.get(name) is value:  # else the user has bound it
            del here.user_ns[name]
            if name in _UNDERSCORES:  # as at IPython's start
                here.user_ns[name] = hidden[name] = ""
    for number in [number for number, value in items(numbered) if id(value) in unwanted]:
        del numbered[number]
    for name in _UNDERSCORES:
        if id(getattr(here.displayhook, name)) in unwanted:
            setattr(here.displayhook, name, "")
    if id(getattr(here.last_execution_result, "result", None)) in unwanted:
        _drop(here.last_execution_result, _OF_RESULT[:1])


def drop_errors() -> None:
    """Drop the errors that IPython and Python keep."""
    here = shell()
    for name in _LAST:
        if hasattr(sys, name):
            delattr(sys, name)
    if here is None:
        return
    _drop(here.InteractiveTB, _OF_TRACEBACK)
    _drop(here.last_execution_result, _OF_RESULT[1:])
    debugger = getattr(here.InteractiveTB, "pdb", None)
    if debugger is not None:
        debugger.reset()  # after `%debug` it has the frames still


def _values(owner: object, fields: tuple[str, ...]) -> Iterator[Any]:
    own = namespace(owner)
    yield from (own[field] for field in fields if own.get(field) is not None)


def _drop(owner: object, fields: tuple[str, ...]) -> None:
    for field in fields:
        if field in namespace(owner):
            with contextlib.suppress(AttributeError):
                setattr(owner, field, None)
