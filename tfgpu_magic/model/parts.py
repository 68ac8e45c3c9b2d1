"""What a room adds to rooms below it: parts, registered by name under a kind, and imported when the kind is asked for.

A room that adds any has a file `parts.py`, which only registers them. Without the room nobody misses them.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal, TypeAlias

Kind: TypeAlias = Literal["word", "row fact", "adviser", "handlers"]
"""What parts there are.

- ``word``: a `policy.word.Word` of the magics, with its `home`; `notebook.words.table` lists it.
- ``row fact``: what is known of processes beside the driver's figures; `monitor.table.tabulate` adds it to its rows.
- ``adviser``: a function that adds to a refusal what would help; the engine calls it with what it was refused for.
- ``handlers``: a function that returns handlers for Jupyter Server; `server.extension` calls it.
"""

_names: dict[str, list[str]] = {}


def register(kind: Kind, name: str) -> None:
    """Add a part by its name: ``package.module``, or ``package.module:attribute``."""
    _names.setdefault(kind, []).append(name)


def parts(kind: Kind) -> list[Any]:
    """Return the parts of a kind, in the order of their rooms' names, and of each room's own list."""
    _find()
    return list(map(resolve_name, _names.get(kind, ())))


@cache
def _find() -> None:
    """Import what registers, once."""
    package = Path(__file__).parents[1]
    for file in sorted(package.glob("*/parts.py")):
        import_module(f"{package.name}.{file.parent.name}.parts")
