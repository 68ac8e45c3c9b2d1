"""What each process and isolated call may come to hold of the GPUs, or waits for: the content of the ledger. Pure.

A claim is written under the lock that decides it, so that whoever decides next sees it. `ledger` keeps the claims of
all processes of a user, `allocation` chooses among the GPUs beside them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

ABSENT = 5.0
"""Seconds after which a waiting call whose claim was not renewed is passed over: its process is stopped, or hangs."""
WANTED_FOR = 60.0
"""Seconds after which nobody is taken to want the room that was not found; who waits for it says so again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a process or a call has of the GPUs, or waits for.

    Attributes:
        number: its number; one that came earlier has a smaller one.
        slot: the number of its process.
        seen: when its process last renewed it, by the machine's monotonic clock.
        kind: what it is for: a call, the policy of its process, a policy that waits for room, or memory that comes back
            from parking.
        worker: the number of the call's process; None before that has begun.
        requested: the GPUs that it waits for, or some of them, by their `allocation.key`; none while that is unknown.
        had: the bytes that it has of each GPU, by the same; of a call with CUDA's context, and None is the whole GPU.
            To a policy None is no limit.
        known: the pids of another namespace that were on the GPUs before the call got them.
        pid: the pid of its process, of a call that of its worker, as this process sees it; None while there is none.
    """

    number: int
    slot: int
    seen: float
    kind: Literal["call", "policy", "wait", "return"] = "call"
    worker: int | None = None
    requested: Sequence[str] = ()
    had: Mapping[str, int | None] = field(default_factory=dict)
    known: Sequence[int] = ()
    pid: int | None = None


@dataclass(slots=True)
class LedgerState:
    """The content of the ledger.

    Attributes:
        last: the last number that was drawn.
        ended: how many calls have given their GPUs back.
        changes: how often anything changed that a call may wait for.
        claims: every claim, by its number.
        wanted: the GPUs on which a process has found no room, with the number of the last one and when that was.
        locked: whether no other process changes it meanwhile.
    """

    last: int = 0
    ended: int = 0
    changes: int = 0
    claims: dict[int, Claim] = field(default_factory=dict)
    wanted: dict[str, tuple[int, float]] = field(default_factory=dict)
    locked: bool = True

    def next_number(self) -> int:
        """Return a number that is larger than all before."""
        self.last += 1
        return self.last

    def put(self, claim: Claim) -> None:
        """Add a claim, or replace the one with its number."""
        self.claims[claim.number] = claim
        self.changes += 1

    def change(self, number: int, **changes: Any) -> None:
        """Change attributes of a claim, if it is there; no call waits for that."""
        if number in self.claims:
            self.claims[number] = replace(self.claims[number], **changes)

    def drop(self, number: int) -> None:
        """Remove a claim, if it is there."""
        claim = self.claims.pop(number, None)
        self.changes += claim is not None
        self.ended += claim is not None and bool(claim.had)

    def waits_behind(self, number: int, gpus: Collection[str]) -> bool:
        """Return whether a claim to one of these GPUs came before another one, still waits, and is looked after.

        One of the same process also comes first while it is not known which GPUs it waits for.

        Args:
            number: that of the other one.
            gpus: these.
        """
        now, slot = time.monotonic(), self.claims[number].slot
        return any(
            not set(gpus).isdisjoint(claim.requested) and now - claim.seen < ABSENT
            if claim.requested
            else claim.slot == slot
            for claim in self.claims.values()
            if claim.number < number and not claim.had
        )

    def request(self, number: int, gpus: Collection[str]) -> None:
        """Renew a claim that waits for these GPUs."""
        self.changes += not self.claims[number].requested
        self.change(number, requested=tuple(gpus), seen=time.monotonic())

    def call_claims(self) -> list[Claim]:
        """Return the claims of all calls."""
        return [claim for claim in self.claims.values() if claim.kind == "call" and claim.had]

    def other_claims(self, slot: int) -> list[Claim]:
        """Return all claims beside those of a process: its calls count, the call that it runs does not."""
        found = self.claims.values()
        return [one for one in found if one.worker != slot and (one.slot != slot or one.kind == "call")]

    def own_claim(self, slot: int, kind: Literal["policy", "return"] = "policy") -> Claim | None:
        """Return the claim of a process itself, without its calls."""
        return next((claim for claim in self.claims.values() if (claim.slot, claim.kind) == (slot, kind)), None)

    def set_own(
        self, slot: int, sizes: Mapping[str, int | None], kind: Literal["policy", "return"] = "policy"
    ) -> Claim | None:
        """Replace the claim of a process itself, and return the earlier one; no call waits for that.

        Args:
            slot: its number.
            sizes: bytes by the GPU's identifier, as in `Claim.had`.
            kind: as in `Claim`.
        """
        before = self.own_claim(slot, kind)
        number = self.next_number() if before is None else before.number
        self.claims.pop(number, None)
        if sizes:
            self.claims[number] = Claim(number=number, slot=slot, seen=time.monotonic(), kind=kind, had=sizes)
        return before

    def note_wanted(self, slot: int, gpus: Iterable[str]) -> None:
        """Note that a process has found no room on these GPUs."""
        self.wanted.update(dict.fromkeys(gpus, (slot, time.monotonic())))

    def wanted_by_others(self, slot: int) -> set[str]:
        """Return the GPUs on which another process than one has found no room within the last `WANTED_FOR`."""
        now = time.monotonic()
        return {gpu for gpu, (who, at) in self.wanted.items() if who != slot and now - at < WANTED_FOR}
