"""What a room adds to rooms below it: parts, registered by name under a kind, and imported when the kind is asked for.

A room that adds any has a file `parts.py`, which only registers them; a module whose part makes sense only once it is
there registers that itself. Without the room nobody misses them.
"""

from __future__ import annotations

import pkgutil
import sys
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any, Literal, TypeAlias

Kind: TypeAlias = Literal["word", "announce", "server task", "check", "park"]
"""What parts there are, and what each is.

- ``word``: a `Word` of the magics, with its `home`; `notebook.words.table` lists it.
- ``announce``: a function that has this process report what it has just picked or may take, and then calls another.
- ``server task``: a function of a server's `Kernels` and its application; it returns more handlers for Jupyter Server,
  and what is called at its end.
- ``check``: a check of the doctor, after its title.
- ``park``: a function that asks the kernel's process of a pid to park itself; its answer has `parked`, and `lines` of
  text on what became of it.
"""

_names: dict[str, list[str]] = {}


def register(kind: Kind, name: str) -> None:
    """Add a part by its name: ``package.module:attribute``."""
    names = _names.setdefault(kind, [])
    if name not in names:  # it is there where an interrupt ended the first reading
        names.append(name)


def parts(kind: Kind) -> list[Any]:
    """Return the parts of a kind, in the order of their rooms' names, and of each room's own list."""
    find()
    names = (name.partition(":") for name in _names.get(kind, ()))
    return [getattr(import_module(module), part) for module, _, part in names]  # resolve_name takes four times as long


@cache
def find() -> None:
    """Import what registers, once; also where the package is in a zip. A fork server does so before it forks."""
    package = __name__.partition(".")[0]
    for root in sys.modules[package].__path__:
        for _, room, is_package in pkgutil.iter_modules([root]):
            if is_package and PathFinder.find_spec("parts", [f"{root}/{room}"]):  # a third of iter_modules' time
                import_module(f"{package}.{room}.parts")
