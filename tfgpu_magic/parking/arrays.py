"""Moves what the frameworks can move to host memory and back, array by array.

An array is freed on the GPU only when its copy is complete, and its copy is dropped only when the array on the GPU is.
So whatever fails, each array is in one of the two places, and what was begun is taken back or tried again.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from tfgpu_magic.claims.ledger import LEDGER
from tfgpu_magic.engine import other_processes, room
from tfgpu_magic.errors import Refused
from tfgpu_magic.frameworks import cuda, registry, self_report
from tfgpu_magic.ground import process_kind
from tfgpu_magic.ground.message import Message, join_lines, msg, paragraph
from tfgpu_magic.ground.report import Parked
from tfgpu_magic.ground.units import MIB, rounded
from tfgpu_magic.machine.see import look
from tfgpu_magic.parking import host_memory, without_gpu
from tfgpu_magic.parking.frameworks import (
    LEAST,
    Movable,
    Mover,
    Staying,
    Survey,
    message_of,
    refusal,
    tensorflow,
    torch,
)
from tfgpu_magic.policy.fit import holders
from tfgpu_magic.policy.process_state import Stage

MOVERS: dict[str, Mover] = {"TensorFlow": tensorflow, "PyTorch": torch}
"""What moves each framework's arrays, by the framework's name."""

NAMED = 5
"""How many things that stay are named, at most."""

Show: TypeAlias = Callable[[Message], object]
"""Takes a message on the progress."""

_RETURN = "unpark-1"
"""The lock of this user's processes that come back."""

_BEHIND = msg("Another process of yours is moving its memory, and this one comes after it.")

_BATCH = 64 * MIB  # bytes of small arrays for which room in host memory is asked at once
_MEASURED = 16 * MIB  # bytes, at the least, of the array that shows how fast copies are, if there is one of them


def check() -> Survey:
    """Find what leaves and what stays, and measure the copy of one array; it waits for the GPUs' work.

    It runs on a thread of its own, as parking does, where no device or stream of the user's is set.
    """
    with futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(_check).result()


def _check() -> Survey:
    found = survey()
    if not found.leaves:
        return found
    if missing := host_memory.shortage(found.leaving):
        return replace(found, refusals=[*found.refusals, missing])
    one = _measured(found.leaves)
    begun = time.perf_counter()
    one.copied()
    return replace(found, seconds=(time.perf_counter() - begun) / one.size * found.leaving)


def survey() -> Survey:
    """Find what leaves and what stays, on this thread."""
    found = _survey(gc.get_objects())  # which must not hold the cell of its own name: that would keep all alive
    if found.refusals or found.staying > LEAST * found.leaving:  # garbage may be why
        del found
        gc.collect()
        found = _survey(gc.get_objects())
    return found


def _survey(objects: Sequence[object]) -> Survey:
    ready = [one for one in registry.FRAMEWORKS if one.stage() is Stage.READY]
    known = {one.name: _addresses(one, objects) for one in ready} if len(ready) > 1 else {}
    surveys: list[Survey] = []
    for framework in ready:
        name = framework.name
        if name in MOVERS:
            foreign = [address for other, there in known.items() if other != name for address in there]
            surveys.append(MOVERS[name].survey(objects, foreign))
        elif size := sum(one.in_use for one in framework.pools()):
            in_place = msg("{name} cannot replace them in place", name=name)
            surveys.append(Survey(stays=[Staying(f"{name}'s arrays", size, in_place)]))
    return Survey(
        leaves=[one for survey in surveys for one in survey.leaves],
        stays=[one for survey in surveys for one in survey.stays],
        refusals=[reason for survey in surveys for reason in survey.refusals],
    )


def _addresses(framework: registry.Framework, objects: Sequence[object]) -> list[int]:
    """Return where a framework's arrays begin."""
    if framework.name in MOVERS:
        return MOVERS[framework.name].addresses(objects)
    return [one.address for one in framework.arrays(objects) or () if one.address]


class MovedArrays:
    """The arrays of this process's frameworks that are in host memory; its report says how many bytes they are.

    Attributes:
        stays: what stayed on the GPUs.
        return_seconds: how long the last way back took, with the wait for room; None before there was one.
    """

    def __init__(self) -> None:
        self._moved: list[Movable] = []
        self._lock = threading.Lock()  # of a way back: one that was called off may still be in a copy
        self._came_back: Sequence[str] = ()
        self._readable = True
        self.stays: Sequence[Staying] = ()
        self.return_seconds: float | None = None
        self_report.away = self._reported

    @property
    def size(self) -> int:
        """The bytes that are in host memory."""
        return sum(self._sizes().values())

    def any_moved(self) -> bool:
        """Return whether any array is in host memory, or may be."""
        return bool(self._moved)

    def move_out(self, wanted: Callable[[], bool] = lambda: True, show: Show = bool) -> None:
        """Move all that can leave to host memory; after an error, what has left is brought back.

        Args:
            wanted: returns whether that is still wanted.
            show: takes messages on the progress.

        Raises:
            Refused: nothing was moved, or what was moved is back if the message does not say otherwise.
        """
        self._came_back = ()
        found = survey()
        if found.reasons:
            raise refusal(paragraph([*found.reasons, *stay_messages(found.stays)]))
        self.stays = found.stays
        try:
            self._take_out(found, wanted, show)
            _give_back()
        except Exception as error:
            show(msg("Moving everything back to the GPU."))
            raise refusal(paragraph([message_of(error), self._taken_back()])) from error
        finally:
            process_kind.announce()

    def _take_out(self, found: Survey, wanted: Callable[[], bool], show: Show) -> None:
        whole = rounded(found.leaving)
        show(msg("Moving {whole} to host memory.", whole=whole))
        begun, moved = time.monotonic(), 0
        for batch in _batches(found.leaves):
            size = sum(one.size for one in batch)
            with host_memory.room(size, wanted):
                for one in batch:
                    if not wanted():
                        raise refusal(msg("It was interrupted."))
                    self._moved.append(one)
                    one.take_out()
            moved += size
            left = about((found.leaving - moved) / moved * (time.monotonic() - begun))
            progress = "{moved} of {whole} are in host memory; {left} more."
            show(msg(progress, moved=rounded(moved), whole=whole, left=left))

    def _taken_back(self) -> Message:
        """Bring back at once what has left, and return what became of it."""
        try:
            while self._moved:
                self._moved[-1].put_back()
                self._moved.pop()
        except Exception as error:
            safe = "{size} that had left are safe in host memory, and come back before the next cell: {why}"
            return msg(safe, size=rounded(self.size), why=str(error))
        return msg("Everything is back on the GPU.")

    def move_back(self, wanted: Callable[[], bool] = lambda: True, show: Show = bool) -> None:
        """Bring every array back, and wait for room while that is wanted. What is back stays so.

        It begins when there is room for all, and one process of this user's comes back at a time: two that each had a
        part back would wait for one another.

        Args:
            wanted: returns whether anybody still waits.
            show: takes messages on the progress.

        Raises:
            Refused: a GPU is gone, lost or too small. Nothing was tried.
        """
        begun, moved, sizes = time.monotonic(), self._moved, self._sizes()
        whole = rounded(sizes.total())

        def tell(left: int) -> None:
            back = rounded(sizes.total() - left)
            show(msg("{back} of {whole} are back on the GPU.", back=back, whole=whole))

        try:
            _check_gpus(sizes)
            show(msg("Moving {whole} back to the GPU.", whole=whole))
            _claim(sizes)
            with room.Wait(show=show) as wait:
                while moved and wanted():
                    with host_memory.locked(_RETURN, wanted, lambda: show(_BEHIND)), self._lock:
                        lacking = _put_back(moved, wanted, tell)
                    if lacking is not None:
                        _give_back()  # what was freed, and a framework keeps
                        time.sleep(wait.go_on(refusal(_no_room(*lacking), retryable=dict([lacking]))))
        finally:
            _claim({})
            if not self._moved:
                self._came_back, self.return_seconds = [*sizes], time.monotonic() - begun
            process_kind.announce()

    def make_unreadable(self) -> None:
        """Make each read of what is in host memory raise an error from now on. All of that stays there for good."""
        self._moved = [*self._moved]  # a way back that hangs may still take arrays from the other list
        for one in sorted(self._moved, key=lambda one: isinstance(one, tensorflow.Variable)):  # PyTorch's may fail
            one.make_unreadable()
        self._readable = False
        process_kind.announce()

    def in_host_memory(self, thing: object) -> tuple[Any, int, list[str]]:
        """Return a variable's or tensor's NumPy array, and of what has several a dict, as `without_gpu.arrays`."""
        return without_gpu.arrays(thing, [partial(mover.array, moved=self._moved) for mover in MOVERS.values()])

    def _sizes(self) -> Counter[str]:
        """Return the bytes in host memory by the UUID of the GPU that they come from."""
        return _by_gpu([*self._moved])  # another thread may bring them back

    def _reported(self) -> Mapping[str, Parked]:
        """Return what is parked or has come back, by the GPU's UUID, for the rows of every view."""
        if self._moved:
            return {gpu: Parked(size=size) for gpu, size in self._sizes().items() if self._readable}
        return dict.fromkeys(self._came_back, Parked(back=self.return_seconds))


def _put_back(
    moved: list[Movable], wanted: Callable[[], bool], tell: Callable[[int], object]
) -> tuple[str, int] | None:
    """Put arrays back from the end of a list while there is room; return a GPU that has none, and for how many bytes.

    Args:
        moved: what is in host memory; what is back is taken from it.
        wanted: returns whether that is still wanted.
        tell: is called after each array, with the bytes that are still in host memory.
    """
    sizes = _by_gpu(moved)
    lacking = next((pair for pair in sizes.items() if not _may_fit(*pair)), None)
    while moved and wanted() and lacking is None:
        one = moved[-1]
        try:
            fits = _may_fit(one.gpu, sizes[one.gpu])  # else TensorFlow tries for ten seconds before it says so
            if fits:
                one.put_back()
        except Exception as error:
            if not registry.is_out_of_memory(error):
                raise
            fits = False
        if fits:
            moved.pop()
            sizes[one.gpu] -= one.size
            tell(sizes.total())
        else:
            lacking = one.gpu, sizes[one.gpu]
    return lacking


def _claim(sizes: Mapping[str, int]) -> None:
    """Claim the room for what comes back, beside what is on the GPUs, so that others leave it; of nothing, none."""
    held = Counter[str]()
    for pool in registry.pools():
        held[pool.gpu] += pool.taken or 0
    with contextlib.suppress(Refused), LEDGER.transaction() as state:  # without the ledger, it comes back too
        state.set_own(LEDGER.slot, {gpu: size + held[gpu] for gpu, size in sizes.items()}, "return")


def _batches(arrays: Sequence[Movable]) -> Iterator[Sequence[Movable]]:
    """Yield arrays as room is asked for them: the one that is measured, then large ones alone, small ones together."""
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


def _may_fit(gpu: str, size: int) -> bool:
    """Return whether a GPU has so many bytes free, with those that the frameworks have taken there and do not use."""
    free = cuda.free_sizes().get(gpu)
    there = [pool for pool in registry.pools(settings=True) if pool.gpu == gpu and pool.taken]
    return free is None or size <= free + sum(max(0, (pool.taken or 0) - pool.in_use) for pool in there)


def _check_gpus(sizes: Mapping[str, int]) -> None:
    """Raise `Refused` if a GPU cannot take back so many bytes, whoever else lets go of memory there.

    NVML is only asked if CUDA does not answer for a GPU, or has no room there.
    """
    free = cuda.free_sizes()
    doubtful = {gpu: size for gpu, size in sizes.items() if gpu and not (gpu in free and _may_fit(gpu, size))}
    snapshot = look() if doubtful else None
    if snapshot is None or snapshot.error:
        return
    there = {gpu.uuid: gpu for gpu in snapshot.gpus if not gpu.lost}
    for uuid, size in doubtful.items():
        gpu, needed = there.get(uuid), rounded(size)
        if gpu is None and uuid not in free:
            raise refusal(msg("GPU {uuid}, to which {size} must come back, is gone or lost.", uuid=uuid, size=needed))
        if gpu is not None and gpu.usable is not None and gpu.usable < size:
            small = "GPU {uuid} has {usable}, and {size} must come back to it."
            raise refusal(msg(small, uuid=uuid, usable=rounded(gpu.usable), size=needed))


def _by_gpu(arrays: Sequence[Movable]) -> Counter[str]:
    """Return the bytes of arrays by the UUID of their GPU."""
    sizes = Counter[str]()
    for one in arrays:
        sizes[one.gpu] += one.size
    return sizes


def _no_room(uuid: str, size: int) -> Message:
    """Return that a GPU has too little room for now, and who holds it."""
    snapshot = look()
    gpu = next((gpu for gpu in snapshot.gpus if gpu.uuid == uuid), None)
    name = "The GPU" if gpu is None else f"GPU {gpu.label}"
    waits = msg("{gpu} does not have {size} free yet.", gpu=name, size=rounded(size))
    names = other_processes.names(snapshot)
    return join_lines([waits, *([] if gpu is None else holders(gpu, snapshot.processes, names))])


def about(seconds: float) -> str:
    """Return an estimated time in words."""
    return "less than 1 s" if seconds < 1 else f"about {seconds:.0f} s"


def stay_messages(stays: Sequence[Staying]) -> list[Message]:
    """Return a sentence for each thing that stays, the largest first."""
    first = sorted(stays, key=lambda one: -(one.size or 0))[:NAMED]
    sizes = [f" ({rounded(one.size)})" if one.size else "" for one in first]
    named = zip(first, sizes, strict=True)
    lines = [msg("{name}{size} stays: {why}.", name=one.name, size=size, why=one.why) for one, size in named]
    return lines + [msg("{more} more stay.", more=len(stays) - NAMED)] * (len(stays) > NAMED)


def _give_back() -> None:
    for framework in registry.freeable():
        if framework.name in MOVERS:
            framework.give_back()
