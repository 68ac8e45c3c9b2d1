"""What of the notebook is sent along with an isolated cell: the names that it reads, and those that are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfgpu_magic.errors import PolicyError, Unpicklable
from tfgpu_magic.isolate.cells.line import CellLine
from tfgpu_magic.isolate.values import pickling
from tfgpu_magic.isolate.values.pickling import Pickled

_SHELLS_OWN = frozenset({"get_ipython", "exit", "quit", "open"})
"""What every shell puts into its namespace for itself. Others that are hidden from `%who` are the notebook's all the
same: `_`, `Out`, and whatever a startup file defines."""


def chosen(shell: Any, reads: frozenset[str], asked: CellLine) -> dict[str, object]:
    """The names to send, with what they stand for.

    Args:
        shell: the notebook's IPython.
        reads: the names that the cell reads.
        asked: what its line asks.

    Raises:
        PolicyError: a name to send is not in the notebook.
    """
    there, hidden = shell.user_ns, shell.user_ns_hidden
    said = (*(asked.inputs or ()), *asked.also)
    for name in said:
        if name not in there:
            raise PolicyError(f"-i {name}: this notebook has no {name!r}.")
    if asked.inputs is not None:
        return {name: there[name] for name in said}
    own = {name for name in _SHELLS_OWN & there.keys() if there[name] is hidden.get(name)}
    return {name: there[name] for name in sorted((reads & (there.keys() - own)) | set(said))}


def pickled(inputs: Mapping[str, object]) -> Pickled:
    """Pickle the names together, so that what two of them share they still do.

    Raises:
        Unpicklable: something cannot be sent; all that cannot is named.
    """
    try:
        return pickling.dump(dict(inputs))
    except Unpicklable:
        found = [trouble for name, value in inputs.items() if (trouble := _trouble(name, value)) is not None]
        told = "\n".join([*map(str, found), "Make it in the cell, or name with -i what to send."])
        raise Unpicklable(told, what=", ".join(trouble.what for trouble in found)) from None


def _trouble(name: str, value: object) -> Unpicklable | None:
    try:
        pickling.dump(value, name)
    except Unpicklable as error:
        return error
    return None
