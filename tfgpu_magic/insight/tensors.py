"""What holds this process's memory of the GPUs, by name: `inventory` of all of it, `holders` for the most of it.

Nothing that is found is kept: the results have names, sizes and devices, and no objects.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from tfgpu_magic.insight import fold
from tfgpu_magic.insight.accounts import Account, accounts
from tfgpu_magic.insight.fold import Row
from tfgpu_magic.insight.names import Holding
from tfgpu_magic.insight.search import Identity, Search, without_collections


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What holds this process's memory of the GPUs at one time.

    Attributes:
        holdings: what holds it, the largest first; none shares memory with another.
        accounts: what each framework has in use on each GPU, and how much of it is found.
        silent: the names of frameworks that use a GPU and do not tell which objects are theirs.
    """

    holdings: tuple[Holding, ...] = ()
    accounts: tuple[Account, ...] = ()
    silent: tuple[str, ...] = ()


def inventory(*, everything: bool = False) -> Inventory:
    """Return what holds this process's memory of the GPUs; under a second for 50,000 arrays.

    Code of the user's that runs in other threads meanwhile may make arrays that are missed.

    Args:
        everything: whether each array is a holding of its own, and not what is small together with its neighbours.
    """
    with without_collections():
        search = Search()
        rows = fold.rows(search.buffers, search.leaves, search.parents, everything=everything)
        return Inventory(
            holdings=tuple(search.holdings(rows)),
            accounts=tuple(accounts(search.buffers, search.in_use)),
            silent=search.silent,
        )


def holders(most: int = 5) -> tuple[Holding, ...]:
    """Return the largest arrays of this process on GPUs, with their names; for an error's handler: it raises nothing.

    Args:
        most: how many.
    """
    with contextlib.suppress(Exception), without_collections():  # the user's own error is what must be seen
        search = Search()
        return tuple(search.holdings(Row(members=(one,)) for one in search.buffers[:most]))
    return ()


def still_there(identities: set[Identity]) -> tuple[Holding, ...]:
    """Return those of certain arrays that are still there, with their names.

    Args:
        identities: what tells them from all others.
    """
    with without_collections():
        search = Search()
        return tuple(search.holdings(Row(members=(one,)) for one in search.of(identities)))
