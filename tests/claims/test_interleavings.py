"""Three notebooks and four calls, in a thousand orders: none claims more than there is without a word."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.sizes import GIB, MIB
from tfgpu_magic.claims.allocation import ProcessMemory, choose, key, promises, size
from tfgpu_magic.claims.claim import Claim, LedgerState
from tfgpu_magic.errors import Refused
from tfgpu_magic.ground.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.policy.decide import decide
from tfgpu_magic.policy.fit import Device
from tfgpu_magic.policy.memory import context_bytes
from tfgpu_magic.policy.parser import parse
from tfgpu_magic.policy.process_state import ProcessState
from tfgpu_magic.policy.requests.limit import Limit

TOTAL = 16 * GIB
GPUS = ("GPU-0", "GPU-1")
CONTEXT = context_bytes(TOTAL)
WORDS = ("limit 60%", "limit 60% --grow", "split 3GiB 3GiB", "pick; limit 9GiB", "visible 1; limit 25%", "growth")
WORDS_OF_TROUBLE = ("are promised: ", "So much is not free now.")


class Machine:
    """Two GPUs, what each process holds of them, and the ledger; pids are the processes' numbers there.

    Attributes:
        held: bytes by process and GPU.
        told: how many notebooks were told that more is claimed than there is.
    """

    def __init__(self, seed: int) -> None:
        self.chance, self.page = random.Random(seed), LedgerState()
        self.held: dict[tuple[int, str], int] = {}
        self.told = 0

    def seen(self) -> Snapshot:
        """Return the GPUs as they are now."""
        gpus = []
        for number, uuid in enumerate(GPUS):
            used = sum(held for (_, gpu), held in self.held.items() if gpu == uuid)
            gpus.append(Gpu(index=number, uuid=uuid, name="T", total=TOTAL, used=used, free=TOTAL - used))
        rows = (Process(gpu=gpu[-1], pid=pid, kind="C", held=held) for (pid, gpu), held in self.held.items())
        return Snapshot(time=0.0, gpus=tuple(gpus), processes=tuple(rows))

    def notebook(self, slot: int) -> Iterator[None]:
        """Say words, take some of what they allow, and say others or end; a step may come long after the one before."""
        while True:
            snapshot, words = self.seen(), parse(self.chance.choice(WORDS))
            yield
            others = self.page.other_claims(slot)  # from here on it has the lock
            process = ProcessState(shown=GPUS, given=GPUS, promises=promises(snapshot, others))
            try:
                plan = decide(words, snapshot, process)
            except Refused:
                self.told += 1
            else:
                sizes = plan.claims(())
                self.page.set_own(slot, sizes)
                if (own := self.page.own_claim(slot)) is not None:
                    self.page.change(own.number, pid=slot)
                for gpu in [gpu for gpu, limit in sizes.items() if limit is not None]:
                    said = [part for note in plan.notes for part in WORDS_OF_TROUBLE if part in str(note)]
                    assert said or self.claimed(gpu) <= TOTAL
                    self.told += bool(said)
                yield
                self.take(slot, {gpu: (limit or GIB) + CONTEXT for gpu, limit in sizes.items()})
            yield
            if self.chance.random() < 0.5:  # it ends, or restarts
                self.page.set_own(slot, {})
                self.held = {one: held for one, held in self.held.items() if one[0] != slot}

    def call(self, slot: int) -> Iterator[None]:
        """Wait for a GPU in the order of asking, take some of it, and end."""
        while True:
            number = self.page.next_number()
            limits = self.chance.choice(((), (2 * GIB,), (6 * GIB,)))
            self.page.put(Claim(number=number, slot=slot, seen=float("inf")))
            while not self.page.claims[number].had:
                ended, snapshot = self.page.ended, self.seen()
                yield
                if self.page.ended != ended:
                    continue
                devices = [Device(gpu, limits, Limit(limits[0]) if limits else None) for gpu in snapshot.gpus]
                asks = Claim(number=number, slot=slot, seen=float("inf"), requested=GPUS)
                self.page.put(asks)
                try:
                    chosen = choose(devices, ProcessMemory(snapshot.processes), self.page.call_claims(), 1)
                except Refused:
                    break
                if chosen is not None and not self.page.waits_behind(number, GPUS):
                    gpu = key(chosen[0].gpu)
                    self.page.put(Claim(number=number, slot=slot, seen=0.0, had={gpu: size(chosen[0])}, pid=slot))
                    there = [one.had[gpu] for one in self.page.call_claims() if gpu in one.had]
                    assert sum(TOTAL if most is None else most for most in there) <= TOTAL
                    yield
                    self.take(slot, {gpu: size(chosen[0]) or TOTAL})
            yield
            self.page.drop(number)
            self.held = {one: held for one, held in self.held.items() if one[0] != slot}

    def take(self, slot: int, most: dict[str, int]) -> None:
        """Have a process hold a part of what it claims, as far as that is free."""
        for gpu, limit in most.items():
            others = sum(held for (pid, where), held in self.held.items() if where == gpu and pid != slot)
            self.held[slot, gpu] = max(0, min(TOTAL - others, self.chance.randint(64 * MIB, limit)))

    def claimed(self, gpu: str) -> int:
        """Return the bytes of a GPU that all claims with a limit are to."""
        there = [one for one in promises(self.seen(), self.page.claims.values()) if one.gpu == gpu]
        return sum(one.total for one in there if one.size is not None)


@pytest.mark.parametrize("block", range(10))
def test_nobody_claims_more_than_there_is_without_a_word(block: int) -> None:
    told = 0
    for seed in range(100 * block, 100 * block + 100):
        machine = Machine(seed)
        actors = [machine.notebook(slot) for slot in range(1, 4)] + [machine.call(slot) for slot in range(4, 8)]
        for _ in range(60):
            next(machine.chance.choice(actors))
        told += machine.told

    assert told  # there was too little now and then
