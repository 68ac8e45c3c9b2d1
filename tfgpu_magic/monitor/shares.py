"""Computes once for every view whose a GPU's memory is, from what each process surely takes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfgpu_magic.monitor.owners import Who
    from tfgpu_magic.monitor.snapshot import Gpu

ShareOf = Literal["this", "mine", "others", "free"]
"""Whose a part of a GPU's memory is: this notebook's, my other processes', another's, or free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A part of a GPU's memory.

    Attributes:
        who: whose it is.
        text: the same for people.
        size: bytes.
    """

    who: ShareOf
    text: str
    size: int


def shares(gpu: Gpu, known: Iterable[tuple[Who, int]], others: str) -> tuple[Share, ...]:
    """Return whose a GPU's memory is, in the order of `ShareOf`; nothing where that is unknown.

    Memory in use that no process of mine holds is others', whether a process accounts for it or not.

    Args:
        gpu: the driver's figures.
        known: whose each process is, and how many bytes it surely takes.
        others: the name of the others' share.
    """
    if gpu.used is None or not gpu.total or gpu.mig:
        return ()
    sizes = {"this": 0, "mine": 0, "others": 0}
    for who, size in known:
        sizes[who if who in sizes else "others"] += size
    rest = gpu.used - sizes["this"] - sizes["mine"]
    found = (
        Share(who="this", text="this notebook", size=sizes["this"]),
        Share(who="mine", text="yours, elsewhere", size=sizes["mine"]),
        Share(who="others", text=others, size=max(sizes["others"], rest)),
        Share(who="free", text="free", size=gpu.free if gpu.free is not None else max(0, gpu.total - gpu.used)),
    )
    return tuple(share for share in found if share.size)
