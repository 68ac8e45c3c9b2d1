"""What a part of a program did to GPU memory: per pool, per GPU, and as a whole. Pure; `measuring` makes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from tfgpu_magic.frameworks.pool import Pool
    from tfgpu_magic.model.snapshot import Snapshot


class PoolUse(NamedTuple):
    """What happened in one pool of a framework: on one logical GPU, by its allocator's account. Sizes are bytes.

    Attributes:
        framework: the framework's name for people.
        name: its name for the logical GPU, ``GPU:0``.
        gpu: the UUID of the GPU that it is on.
        before: in use at the beginning.
        after: in use at the end.
        peak: the most in use at once between the two, `before` included.
        exact: whether the peak is exact; else it is the most that it may have been.
        limit: what the pool may take; None where that is unknown, or nothing limits it.
    """

    framework: str
    name: str
    gpu: str
    before: int
    after: int
    peak: int
    exact: bool = True
    limit: int | None = None

    @property
    def delta(self) -> int:
        """What stayed in use, less what was given back."""
        return self.after - self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What the driver says that this process held of one GPU. Sizes are bytes; None is unknown.

    Attributes:
        gpu: the `Gpu.label`.
        uuid: the `Gpu.uuid`.
        before: at the beginning.
        after: at the end.
    """

    gpu: str
    uuid: str | None
    before: int | None
    after: int | None

    @property
    def delta(self) -> int | None:
        """What came to it; None where that is unknown."""
        return None if self.before is None or self.after is None else self.after - self.before


def pool_uses(framework: str, before: Mapping[str, Pool], after: Iterable[Pool]) -> tuple[PoolUse, ...]:
    """Return what happened in each pool; one that was not there before was empty.

    Args:
        framework: the framework's name for people.
        before: the counters at the beginning, by name.
        after: the counters at the end, with the peaks since the beginning.
    """
    return tuple(
        PoolUse(
            framework=framework,
            name=one.name,
            gpu=one.gpu,
            before=before[one.name].in_use if one.name in before else 0,
            after=one.in_use,
            peak=one.peak,
            exact=one.exact,
            limit=one.limit,
        )
        for one in after
    )


def held_of(pid: int, before: Snapshot, after: Snapshot, using: Container[str]) -> tuple[Held, ...]:
    """Return what a process held of each GPU that it holds memory of, or did.

    Args:
        pid: its process id.
        before: the driver's figures at the beginning.
        after: those at the end.
        using: the UUIDs of the GPUs that the process uses by its own account: where the driver does not list it there,
            as in some containers, what it holds is unknown.
    """
    then, now = _held(pid, before), _held(pid, after)
    listed = {gpu.label for gpu in before.gpus if gpu.listed}
    found: list[Held] = []
    for gpu in after.gpus:
        hidden = gpu.uuid in using and gpu.label not in now
        if hidden or gpu.label in now or gpu.label in then:
            first = then.get(gpu.label, 0 if gpu.label in listed and not hidden else None)
            last = now.get(gpu.label, 0 if gpu.listed and not hidden else None)
            found.append(Held(gpu=gpu.label, uuid=gpu.uuid, before=first, after=last))
    return tuple(found)


def _held(pid: int, snapshot: Snapshot) -> dict[str, int | None]:
    return {row.gpu: row.held for row in snapshot.processes if row.pid == pid}
