"""What holds this process's memory of the GPUs, by name: `tensors` of all of it, `holders` for the most of it.

Nothing that is found is kept: the results have names, sizes and devices, and no objects.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from tfgpu_magic.insight import fold
from tfgpu_magic.insight.accounts import Buffer, accounts
from tfgpu_magic.insight.answers.tensors import Tensors
from tfgpu_magic.insight.fold import Row
from tfgpu_magic.insight.search import Identity, Search, without_collections


def tensors(*, everything: bool = False) -> Tensors:
    """Return what holds this process's memory of the GPUs, by name. No framework is started for it.

    Names lead to arrays from a notebook's variables, from what IPython keeps of results and errors, from functions
    that run, and from modules of your own. Code that runs in other threads meanwhile may make arrays that are missed.

    Args:
        everything: whether each array stands by itself; else those that are small stand together with their
            neighbours, as soon as there are more than twenty.

    Returns:
        What holds the memory, for all frameworks that use a GPU, the largest first, sizes in bytes; and what each
        framework has in use on each GPU by its own figure. It keeps nothing alive.
    """
    with without_collections():
        search = Search()
        rows = fold.rows(search.buffers, search.leaves, search.parents, everything=everything)
        return Tensors(
            holdings=tuple(search.holdings(rows)),
            accounts=tuple(accounts(search.buffers, search.in_use)),
            silent=search.silent,
            gave_up=search.gave_up,
        )


def holders(most: int) -> Tensors:
    """Return the largest arrays of this process on GPUs, with their names; for an error's handler: it raises nothing.

    Args:
        most: how many.
    """
    with contextlib.suppress(Exception), without_collections():  # the user's own error is what must be seen
        search = Search()
        return _each(search, search.buffers[:most])
    return Tensors()


def still_there(identities: set[Identity]) -> Tensors:
    """Return those of certain arrays that are still there, with their names.

    Args:
        identities: what tells them from all others.
    """
    with without_collections():
        search = Search()
        return _each(search, search.of(identities))


def _each(search: Search, buffers: Sequence[Buffer]) -> Tensors:
    holdings = search.holdings(Row(members=(one,)) for one in buffers)
    return Tensors(holdings=tuple(holdings), gave_up=search.gave_up)
