"""Moves what the frameworks can move to host memory and back, array by array: the `Mechanism` behind the gate.

An array is freed on the GPU only when its copy is whole, and its copy is dropped only when it is whole on the GPU. So
whatever fails, each array is in one of the two places, and what was begun is taken back or tried again.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tfgpu_magic.engine import other_processes
from tfgpu_magic.frameworks import cuda, registry
from tfgpu_magic.model.said import in_lines
from tfgpu_magic.monitor.board import wanted as wanted_board
from tfgpu_magic.monitor.driver.look import look
from tfgpu_magic.parking import host_memory, without_gpu
from tfgpu_magic.parking.frameworks import Movable, Mover, Staying, Survey
from tfgpu_magic.parking.frameworks.tensorflow import TensorFlowMover, Variable
from tfgpu_magic.parking.frameworks.torch import TorchMover
from tfgpu_magic.policy.fit import holders
from tfgpu_magic.policy.process_state import Stage
from tfgpu_magic.units import MIB, rounded

MOVERS: dict[str, Mover] = {"TensorFlow": TensorFlowMover(), "PyTorch": TorchMover()}
"""What moves each framework's arrays, by the framework's name."""

LEAST = 0.1
"""The part of what a process holds that must leave, for parking to be worth it."""

NAMED = 5
"""How many things that stay are named, at most."""

_RETURN = "unpark-1"
"""The turn of this user's processes to come back."""

_TRY_EVERY = 1.0  # seconds between two attempts to come back

_BEHIND = "Another process of yours is moving its memory, and this one comes after it."

_BATCH = 64 * MIB  # bytes of small arrays for which room in host memory is asked at once

_MEASURED = 16 * MIB  # bytes, at the least, of the array that shows how fast copies are, where there is one of them


class NotParked(Exception):
    """Nothing was moved, or what was moved is back; the text says why."""


class GpuGone(Exception):
    """A GPU cannot take back what was on it; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What leaves this process's GPUs, and what stays.

    Attributes:
        leaves: what leaves.
        stays: what stays, by name.
        refusals: why this process must not be parked.
        seconds: about how long the way out takes; None where that was not measured.
    """

    leaves: Sequence[Movable]
    stays: Sequence[Staying]
    refusals: Sequence[str]
    seconds: float | None = None

    @property
    def leaving(self) -> int:
        """The bytes that leave."""
        return sum(one.size for one in self.leaves)

    @property
    def staying(self) -> int:
        """The bytes that stay, as far as they are known."""
        return sum(one.size or 0 for one in self.stays)

    @property
    def reasons(self) -> Sequence[str]:
        """Why this process must not be parked, or is not worth it."""
        if self.leaving and self.leaving >= LEAST * (self.leaving + self.staying):
            return self.refusals
        leaves = f"Only {rounded(self.leaving)}" if self.leaving else "Nothing"
        little = f"{leaves} would leave the GPU, and {rounded(self.staying)} would stay."
        nothing = "Neither TensorFlow nor PyTorch has anything on a GPU here."
        return [*self.refusals, little if self.leaving or self.stays else nothing]


def check() -> Contents:
    """Find what leaves and what stays, and measure the copy of one array; it waits for the GPUs' work.

    It runs on a thread of its own, as parking does, on which nothing that the user has set for theirs holds.
    """
    with futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(_check).result()


def _check() -> Contents:
    found = contents()
    if not found.leaves:
        return found
    if missing := host_memory.shortage(found.leaving):
        return replace(found, refusals=[*found.refusals, missing])
    one = _measured(found.leaves)
    begun = time.perf_counter()
    one.copied()
    return replace(found, seconds=(time.perf_counter() - begun) / one.size * found.leaving)


def contents() -> Contents:
    """Find what leaves and what stays, on this thread."""
    found = _contents()
    if found.refusals or found.staying > LEAST * found.leaving:  # garbage may be why
        del found
        gc.collect()
        found = _contents()
    return found


def _contents() -> Contents:
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
        self._lock = threading.Lock()  # of a way back: one that was called off may still be in a copy
        self.stays: Sequence[Staying] = ()

    @property
    def parked(self) -> int:
        """The bytes that are in host memory."""
        return sum(self.parked_on().values())

    def parked_on(self) -> Mapping[str, int]:
        """Return the same by the GPU that they come from, by its UUID."""
        return _by_gpu([*self._away])  # another thread may bring them back

    def away(self) -> bool:
        """Return whether any array is in host memory."""
        return bool(self._away)

    def take_away(
        self, wanted: Callable[[], bool] = lambda: True, show: Callable[[str], object] = lambda _: None
    ) -> None:
        """Move all that can leave to host memory; after an error, what has left is brought back."""
        found = contents()
        if found.reasons:
            raise NotParked(" ".join([*found.reasons, *described(found.stays)]))
        self.stays = found.stays
        try:
            self._take_out(found, wanted, show)
        except Exception as error:
            show("What has left is being brought back.")
            raise NotParked(f"{str(error) or type(error).__name__} {self._taken_back()}") from error
        _give_back()

    def _take_out(self, found: Contents, wanted: Callable[[], bool], show: Callable[[str], object]) -> None:
        show(f"{rounded(found.leaving)} go to host memory.")
        begun, moved = time.monotonic(), 0
        for batch in _batches(found.leaves):
            size = sum(one.size for one in batch)
            with host_memory.room(size, wanted):
                for one in batch:
                    if not wanted():
                        raise NotParked("It was interrupted.")
                    self._away.append(one)
                    one.take_out()
            moved += size
            left = (found.leaving - moved) / moved * (time.monotonic() - begun)
            show(f"{rounded(moved)} of {rounded(found.leaving)} are in host memory; {about(left)} more.")

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
        """Bring every array back, and wait for room while anybody wants that; what is back stays so.

        It begins when there is room for all, and one process of this user's comes back at a time: two that each had a
        part back would wait for one another.

        Raises:
            GpuGone: a GPU is gone, lost or too small; nothing was tried.
        """
        _check_gpus(self._away)
        whole = self.parked
        show(f"{rounded(whole)} are being brought back to the GPU.")
        while self._away and wanted():
            with host_memory.turn(_RETURN, wanted, lambda: show(_BEHIND)), self._lock:
                lacking = self._put_back(
                    wanted, lambda left: show(f"{rounded(whole - left)} of {rounded(whole)} are back on the GPU.")
                )
            if lacking is not None:
                wanted_board.note(lacking[:1])
                _give_back()  # what was freed, and a framework keeps
                show(_no_room(*lacking))
                time.sleep(_TRY_EVERY)

    def _put_back(self, wanted: Callable[[], bool], tell: Callable[[int], object]) -> tuple[str, int] | None:
        """Put back what is away while there is room for it; return a GPU that has none, and for how many bytes.

        `tell` is called after each array, with the bytes that are still away.
        """
        sizes = _by_gpu(self._away)
        lacking = next((pair for pair in sizes.items() if not _may_fit(*pair)), None)
        while self._away and wanted() and lacking is None:
            one = self._away[-1]
            try:
                fits = _may_fit(one.gpu, sizes[one.gpu])  # else TensorFlow tries for ten seconds before it says so
                if fits:
                    one.put_back()
            except Exception as error:
                if not registry.out_of_memory(error):
                    raise
                fits = False
            if fits:
                self._away.pop()
                sizes[one.gpu] -= one.size
                tell(sum(sizes.values()))
            else:
                lacking = one.gpu, sizes[one.gpu]
        return lacking

    def make_unreadable(self) -> None:
        """Have each read of an array that is away raise an error from now on."""
        for one in sorted(self._away, key=lambda one: isinstance(one, Variable)):  # PyTorch's may fail, and comes first
            one.make_unreadable()

    def in_host_memory(self, thing: object) -> tuple[Any, int, list[str]]:
        """Return a variable's or tensor's NumPy array, and of what has several a dict, as `without_gpu.arrays`.

        What is no array stays as it is there.
        """
        return without_gpu.arrays(thing, [partial(mover.array, away=self._away) for mover in MOVERS.values()])


def _batches(arrays: Sequence[Movable]) -> Iterator[Sequence[Movable]]:
    """Give arrays as room is asked for them: the one that is measured, then large ones alone, small ones together."""
    first = _measured(arrays)
    yield [first]
    batch, size = list[Movable](), 0
    for one in sorted((one for one in arrays if one is not first), key=lambda one: -one.size):
        if batch and size + one.size > _BATCH:
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += one.size
    if batch:
        yield batch


def _measured(arrays: Sequence[Movable]) -> Movable:
    """Return an array whose copy is short, and long enough to show how fast copies are."""
    enough = [one for one in arrays if one.size >= _MEASURED]
    return min(enough, key=lambda one: one.size) if enough else max(arrays, key=lambda one: one.size)


def about(seconds: float) -> str:
    """Return an estimated time in words."""
    return "less than 1 s" if seconds < 1 else f"about {seconds:.0f} s"


def _may_fit(gpu: str, size: int) -> bool:
    """Tell whether a GPU has so many bytes free, with those that the frameworks have taken there and do not use."""
    free = cuda.free().get(gpu)
    there = [pool for pool in registry.pools(settings=True) if pool.gpu == gpu and pool.taken]
    return free is None or size <= free + sum(max(0, (pool.taken or 0) - pool.in_use) for pool in there)


def _check_gpus(arrays: Sequence[Movable]) -> None:
    """Raise `GpuGone` if a GPU cannot take back its arrays, whoever else lets go of memory there.

    NVML is only asked where CUDA does not answer for a GPU, or has no room there.
    """
    free = cuda.free()
    doubtful = {gpu: size for gpu, size in _by_gpu(arrays).items() if gpu and not (gpu in free and _may_fit(gpu, size))}
    snapshot = look() if doubtful else None
    if snapshot is None or snapshot.error:
        return
    there = {gpu.uuid: gpu for gpu in snapshot.gpus if not gpu.lost}
    for uuid, size in doubtful.items():
        gpu = there.get(uuid)
        if gpu is None and uuid not in free:
            raise GpuGone(f"GPU {uuid}, to which {rounded(size)} must come back, is gone or lost.")
        if gpu is not None and gpu.usable is not None and gpu.usable < size:
            raise GpuGone(f"GPU {uuid} has {rounded(gpu.usable)}, and {rounded(size)} must come back to it.")


def _by_gpu(arrays: Sequence[Movable]) -> Counter[str]:
    """Return the bytes of arrays by the UUID of their GPU."""
    sizes = Counter[str]()
    for one in arrays:
        sizes[one.gpu] += one.size
    return sizes


def _no_room(uuid: str, size: int) -> str:
    """Say that what was on a GPU does not come back for now, and who holds that GPU."""
    text = f"The GPU has no room for {rounded(size)} that were there. It is tried again each second."
    snapshot = look()
    held = [
        line
        for gpu in snapshot.gpus
        if gpu.uuid == uuid
        for line in holders(gpu, snapshot.processes, other_processes.names(snapshot))
    ]
    return in_lines([text, *held])


def described(stays: Sequence[Staying]) -> list[str]:
    """Return a sentence for each thing that stays, the largest first."""
    first = sorted(stays, key=lambda one: -(one.size or 0))[:NAMED]
    lines = [f"{one.name}{f' ({rounded(one.size)})' if one.size else ''} stays: {one.why}." for one in first]
    return lines + [f"{len(stays) - NAMED} more stay."] * (len(stays) > NAMED)


def _give_back() -> None:
    for framework in registry.freeing():
        if framework.name in MOVERS:
            MOVERS[framework.name].give_back()
