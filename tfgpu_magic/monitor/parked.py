"""How far the parking of a process has come, for its row: plain data, which `parked_rows` makes from the record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

ParkedState: TypeAlias = Literal["parking", "parked", "waiting", "restoring", "failed"]
"""On its way to host memory; there; there, while somebody wants it back and there is no room; on its way back; lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """How far the parking of a process has come.

    Attributes:
        state: how far.
        size: bytes of this GPU's memory that are in host memory, or on their way there or back.
        since: since when, in seconds since the epoch; of one that is away, since when it is.
        behind: while it waits for room, who holds most of the GPU; empty where nobody does. It may be hostile text.
        trouble: why it does not go on for now; a word of `parking.settling`, empty where nothing is wrong.
    """

    state: ParkedState
    size: int
    since: float
    behind: str = ""
    trouble: str = ""
