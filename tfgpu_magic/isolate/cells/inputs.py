"""Chooses and pickles the notebook's names that are sent with a cell: those that it reads, and those asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfgpu_magic.errors import PolicyError, Unpicklable
from tfgpu_magic.isolate.cells.line import CellLine
from tfgpu_magic.isolate.values import pickling
from tfgpu_magic.isolate.values.pickling import Pickled

_SHELLS_OWN = frozenset({"get_ipython", "exit", "quit", "open"})
"""The names that every shell puts into its namespace for itself. Other names that are hidden from `%who` belong to the
notebook all the same: `_`, `Out`, and those that a startup file defines."""


def chosen(shell: Any, reads: frozenset[str], line: CellLine) -> dict[str, object]:
    """Return the names to send, with their values.

    Args:
        shell: the notebook's IPython.
        reads: the names that the cell reads.
        line: what its line asks.

    Raises:
        PolicyError: a name to send is not in the notebook.
    """
    there, hidden = shell.user_ns, shell.user_ns_hidden
    named = (*(line.inputs or ()), *line.also)
    for name in named:
        if name not in there:
            raise PolicyError(f"-i {name}: this notebook has no {name!r}.")
    if line.inputs is not None:
        return {name: there[name] for name in named}
    own = {name for name in _SHELLS_OWN & there.keys() if there[name] is hidden.get(name)}
    return {name: there[name] for name in sorted((reads & (there.keys() - own)) | set(named))}


def pickled(inputs: Mapping[str, object], surely: frozenset[str]) -> tuple[Pickled, dict[str, str]]:
    """Pickle the names together, so that what two of them share stays shared.

    Args:
        inputs: the names, with their values.
        surely: those that the cell cannot do without.

    Returns:
        The pickle, and why others could not be sent, by name.

    Raises:
        Unpicklable: something that the cell cannot do without cannot be sent; the message names all such.
    """
    try:
        return pickling.dump(dict(inputs)), {}
    except Unpicklable:
        errors = {name: error for name, value in inputs.items() if (error := _error(name, value)) is not None}
    refused = [error for name, error in errors.items() if name in surely]
    if refused:
        text = "\n".join([*map(str, refused), "Make it in the cell, or name with -i what to send."])
        raise Unpicklable(text, what=", ".join(error.what for error in refused)) from None
    sent = {name: value for name, value in inputs.items() if name not in errors}
    return pickling.dump(sent), {name: str(error) for name, error in errors.items()}


def _error(name: str, value: object) -> Unpicklable | None:
    try:
        pickling.dump(value, name)
    except Unpicklable as error:
        return error
    return None
