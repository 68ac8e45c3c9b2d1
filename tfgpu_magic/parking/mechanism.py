"""Moves what the frameworks can move to host memory and back, array by array: the `Mechanism` behind the gate.

An array is freed on the GPU only when its copy is whole, and its copy is dropped only when it is whole on the GPU. So
whatever fails, each array is in one of the two places, and what was begun is taken back or tried again.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tfgpu_magic.frameworks import cuda, registry
from tfgpu_magic.monitor.board import wanted as wanted_board
from tfgpu_magic.parking import host_memory
from tfgpu_magic.parking.frameworks import Movable, Mover, Staying, Survey
from tfgpu_magic.parking.frameworks.tensorflow import TensorFlowMover
from tfgpu_magic.parking.frameworks.torch import TorchMover
from tfgpu_magic.policy.process_state import Stage
from tfgpu_magic.units import MIB, rounded

MOVERS: dict[str, Mover] = {"TensorFlow": TensorFlowMover(), "PyTorch": TorchMover()}
"""What moves each framework's arrays, by the framework's name."""

LEAST = 0.1
"""The part of what a process holds that must leave, for parking to be worth it."""

NAMED = 5
"""How many things that stay are named, at most."""

_TRY_EVERY = 1.0  # seconds between two attempts to come back

_BATCH = 64 * MIB  # bytes of small arrays for which room in host memory is asked at once

_T = TypeVar("_T")


class NotParked(Exception):
    """Nothing was moved, or what was moved is back; the text says why."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What leaves this process's GPUs, and what stays.

    Attributes:
        leaves: what leaves.
        stays: what stays, by name.
        refusals: why this process must not be parked.
    """

    leaves: Sequence[Movable]
    stays: Sequence[Staying]
    refusals: Sequence[str]

    @property
    def leaving(self) -> int:
        """The bytes that leave."""
        return sum(one.size for one in self.leaves)

    @property
    def reasons(self) -> Sequence[str]:
        """Why this process must not be parked, or is not worth it."""
        stays = sum(one.size or 0 for one in self.stays)
        if self.leaving and self.leaving >= LEAST * (self.leaving + stays):
            return self.refusals
        leaves = f"Only {rounded(self.leaving)}" if self.leaving else "Nothing"
        little = f"{leaves} would leave the GPU, and {rounded(stays)} would stay."
        nothing = "Neither TensorFlow nor PyTorch has anything on a GPU here."
        return [*self.refusals, little if self.leaving or self.stays else nothing]


def check() -> Contents:
    """Find what leaves and what stays, on a thread as in parking; it waits for the GPUs' work, and changes nothing."""
    return _in_thread(contents)


def contents() -> Contents:
    """Find the same on this thread."""
    gc.collect()  # so that garbage is neither copied nor named
    objects = gc.get_objects()
    ready = [one for one in registry.FRAMEWORKS if one.stage() is Stage.READY]
    known = {one.name: _addresses(one, objects) for one in ready} if len(ready) > 1 else {}
    surveys: list[Survey] = []
    for framework in ready:
        name = framework.name
        if name in MOVERS:
            foreign = [address for other, there in known.items() if other != name for address in there]
            surveys.append(MOVERS[name].survey(objects, foreign))
        elif size := sum(one.in_use for one in framework.pools()):
            surveys.append(Survey(stays=[Staying(f"{name}'s arrays", size, f"{name} cannot replace them in place")]))
    return Contents(
        leaves=[one for survey in surveys for one in survey.leaves],
        stays=[one for survey in surveys for one in survey.stays],
        refusals=[survey.refusal for survey in surveys if survey.refusal],
    )


def _addresses(framework: registry.Framework, objects: Sequence[object]) -> list[int]:
    """Return where a framework's arrays begin."""
    mover = MOVERS.get(framework.name)
    if mover is not None:
        return mover.addresses(objects)
    return [one.address for one in framework.arrays(objects) or () if one.address]


class FrameworkMechanism:
    """The arrays of this process's frameworks, and where they are."""

    def __init__(self) -> None:
        self._away: list[Movable] = []
        self.stays: Sequence[Staying] = ()

    @property
    def parked(self) -> int:
        """The bytes that are in host memory."""
        return sum(self.parked_on().values())

    def parked_on(self) -> Mapping[str, int]:
        """Return the same by the GPU that they come from, by its UUID."""
        found: dict[str, int] = {}
        for one in [*self._away]:  # another thread may bring them back
            found[one.gpu] = found.get(one.gpu, 0) + one.size
        return found

    def away(self) -> bool:
        """Return whether any array is in host memory."""
        return bool(self._away)

    def take_away(self) -> None:
        """Move all that can leave to host memory; after an error, what has left is brought back."""
        _in_thread(self._take_away)

    def _take_away(self) -> None:
        found = contents()
        if found.reasons:
            raise NotParked(" ".join([*found.reasons, *described(found.stays)]))
        self.stays = found.stays
        try:
            for batch in _batches(found.leaves):
                with host_memory.room(sum(one.size for one in batch)):
                    for one in batch:
                        self._away.append(one)
                        one.take_out()
        except Exception as error:
            raise NotParked(f"{str(error) or type(error).__name__} {self._taken_back()}") from error
        _give_back()

    def _taken_back(self) -> str:
        """Bring back at once what has left, and say what became of it."""
        try:
            while self._away:
                self._away[-1].put_back()
                self._away.pop()
        except Exception as error:
            left = rounded(self.parked)
            return f"{left} that had left are safe in host memory, and come back before the next cell: {error}"
        return "What had left is back."

    def bring_back(self, wanted: Callable[[], bool], show: Callable[[str], object]) -> None:
        """Bring every array back, and wait for room while anybody wants that; what is back stays so."""
        show("Its memory is being brought back to the GPU.")
        while self._away and wanted():
            one = self._away[-1]
            try:
                fits = _may_fit(one)  # else TensorFlow tries for ten seconds before it says so
                if fits:
                    one.put_back()
                    self._away.pop()
            except Exception as error:
                if not registry.out_of_memory(error):
                    raise
                fits = False
            if not fits:
                wanted_board.note([one.gpu])
                _give_back()  # what was freed, and a framework keeps
                show(f"The GPU has no room for {rounded(one.size)} that were there. It is tried again each second.")
                time.sleep(_TRY_EVERY)


def _batches(arrays: Sequence[Movable]) -> Iterator[list[Movable]]:
    """Give arrays as room is asked for them: the largest first and alone, many small ones together."""
    batch: list[Movable] = []
    for one in sorted(arrays, key=lambda one: -one.size):
        if batch and sum(other.size for other in batch) + one.size > _BATCH:
            yield batch
            batch = []
        batch.append(one)
    if batch:
        yield batch


def _may_fit(one: Movable) -> bool:
    """Tell whether a GPU has so many bytes free, with those that the frameworks have taken there and do not use."""
    free = cuda.free().get(one.gpu)
    there = [pool for pool in registry.pools(settings=True) if pool.gpu == one.gpu and pool.taken]
    return free is None or one.size <= free + sum(max(0, (pool.taken or 0) - pool.in_use) for pool in there)


def described(stays: Sequence[Staying]) -> list[str]:
    """Return a sentence for each thing that stays, the largest first."""
    first = sorted(stays, key=lambda one: -(one.size or 0))[:NAMED]
    lines = [f"{one.name}{f' ({rounded(one.size)})' if one.size else ''} stays: {one.why}." for one in first]
    return lines + [f"{len(stays) - NAMED} more stay."] * (len(stays) > NAMED)


def _give_back() -> None:
    for framework in registry.freeing():
        if framework.name in MOVERS:
            MOVERS[framework.name].give_back()


def _in_thread(do: Callable[[], _T]) -> _T:
    """Do something on a thread of its own, on which nothing that the user has set for theirs holds."""
    done: list[_T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            done.append(do())
        except BaseException as error:  # whatever it is, the caller must hear of it
            failed.append(error)

    thread = threading.Thread(target=work, name="tfgpu_magic-park")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]
