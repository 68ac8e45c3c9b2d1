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

Kind: TypeAlias = Literal[
    "word", "row fact", "announce", "adviser", "parks", "parking on", "parks itself", "handlers", "end",
    "park", "server task", "check", "report",
]  # fmt: skip
"""What parts there are, and what each is.

- ``word``: a `Word` of the magics, with its `home`; `notebook.words.table` lists it.
- ``row fact``: a function of the board's directories and the kernels' reports; it returns a `RowFact`, or None, for
  `monitor.table.tabulate`.
- ``announce``: a function that has this process report what it has just picked or may take, and then calls another.
- ``adviser``: a function that adds to a refusal what would make room, as `parking.idle_notebooks.name_one`.
- ``parks``: a function of the magics; it tells whether others can have this process parked.
- ``parking on``: a function that is called when it is turned on, before anything else of it.
- ``parks itself``: a function of the shell and seconds without a cell; from then on this process is parked by itself.
- ``handlers``: a function of what returns a server's kernels; it returns more handlers for Jupyter Server.
- ``end``: a function of a pid; it returns why that is not to be killed, "" where it may be, None of one unknown.
- ``park``: an asynchronous function of a kernel's pid; it has that park itself, and returns why it does not, or "".
- ``server task``: a function of a server's `Kernels` and its application; it returns more handlers for Jupyter Server,
  and what is called at its end.
- ``check``: a check of the doctor, after its title.
- ``report``: a function of a machine and of what the doctor found; it returns the line that can be sent about a try.
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
