"""What a part of a program did to GPU memory: per pool, per GPU, and as a whole. `measuring` makes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tfgpu_magic.ground import TENSORFLOW, phrases
from tfgpu_magic.ground.answer import Answer, Part, grid, headline
from tfgpu_magic.ground.message import Message, msg
from tfgpu_magic.ground.units import rounded

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from tfgpu_magic.frameworks.pool import Pool
    from tfgpu_magic.ground.snapshot import Snapshot

_HEADS = ("<In use", ">Before", ">After", ">Change", ">Peak", ">Limit")
_HELD_HEADS = ("<Held", ">Before", ">After", ">Change")

NO_POOL = msg("No framework uses a GPU here: TensorFlow, PyTorch or JAX would have figures.")
_UNLISTED = msg("The driver does not tell what this process holds, so that is not known.")


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
        limit: what the pool may take; None if that is unknown, or nothing limits it.
    """

    framework: str
    name: str
    gpu: str
    before: int
    after: int
    peak: int
    exact: bool = True
    limit: int | None = None

    @classmethod
    def between(cls, framework: str, before: Pool | None, after: Pool) -> PoolUse:
        """Return what happened in a pool. One that was not there before was empty.

        Args:
            framework: the framework's name for people.
            before: the counters at the beginning.
            after: the counters at the end, with the peak since the beginning.
        """
        first = 0 if before is None else before.in_use
        return cls(framework, after.name, after.gpu, first, after.in_use, after.peak, after.exact, after.limit)

    @property
    def delta(self) -> int:
        """What stayed in use, less what was given back."""
        return self.after - self.before

    @property
    def in_use(self) -> int:
        """What was in use last."""
        return self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldChange:
    """What the driver says that this process held of one GPU. Sizes are bytes, and None is unknown.

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
        """What came to it, or None if that is unknown."""
        return None if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Measurement(Answer):
    """What a part of a program did to GPU memory. Sizes are bytes.

    Attributes:
        seconds: how long it took.
        pools: a `PoolUse` for each pool of the frameworks that use a GPU; empty if none does.
        gpus: a `HeldChange` for each GPU of which this process held memory; empty if it held none.
        asked: whether the driver was asked.
        trouble: why it has no figures, in words; empty if it has.
        started: the frameworks that began to use a GPU meanwhile.
        error: the name of the class of the error that ended it; empty if none did.
        simulated: whether the GPUs are those of a simulated machine.
        what: what was measured, as people call it; empty if that is plain.
        cell: the number of the cell that it is, as in ``In [5]``; None if it is none, or has none.
        began: when it began, in seconds since the epoch.
    """

    seconds: float
    pools: tuple[PoolUse, ...] = ()
    gpus: tuple[HeldChange, ...] = ()
    asked: bool = False
    trouble: str = ""
    started: tuple[str, ...] = ()
    error: str = ""
    simulated: bool = False
    what: str = ""
    cell: int | None = None
    began: float = 0.0

    @property
    def ended(self) -> float:
        """When it ended, in seconds since the epoch."""
        return self.began + self.seconds

    @property
    def peak(self) -> int:
        """The highest peak of any pool, or 0 if no framework uses a GPU."""
        return max((pool.peak for pool in self.pools), default=0)

    @property
    def delta(self) -> int:
        """What stayed in use of all pools together, less what was given back."""
        return sum(pool.delta for pool in self.pools)

    @property
    def held(self) -> int | None:
        """What came to what the driver gives this process, on all GPUs together, or None if that is unknown."""
        changes = [gpu.delta for gpu in self.gpus if gpu.delta is not None]
        known = self.asked and not self.trouble and len(changes) == len(self.gpus)
        return sum(changes) if known else None

    def _parts(self) -> Iterable[Part | Message | str]:
        tables = grid(_HEADS, _pool_rows(self), long=True), grid(_HELD_HEADS, _held_rows(self))
        return [headline(str(_summary(self))), *tables, *_remarks(self)]


def held_changes(pid: int, before: Snapshot, after: Snapshot, using: Container[str]) -> tuple[HeldChange, ...]:
    """Return what a process held of each GPU that it holds memory of, or did.

    Args:
        pid: its process id.
        before: the driver's figures at the beginning.
        after: those at the end.
        using: the UUIDs of the GPUs that the process uses by its own account: if the driver does not list it there,
            as in some containers, what it holds is unknown.
    """
    then, now = _held_by_gpu(pid, before), _held_by_gpu(pid, after)
    listed = {gpu.label for gpu in before.gpus if gpu.listed}
    found: list[HeldChange] = []
    for gpu in after.gpus:
        hidden = gpu.uuid in using and gpu.label not in now
        if hidden or gpu.label in now or gpu.label in then:
            first = then.get(gpu.label, 0 if gpu.label in listed and not hidden else None)
            last = now.get(gpu.label, 0 if gpu.listed and not hidden else None)
            found.append(HeldChange(gpu=gpu.label, uuid=gpu.uuid, before=first, after=last))
    return tuple(found)


def _held_by_gpu(pid: int, snapshot: Snapshot) -> dict[str, int | None]:
    return {row.gpu: row.held for row in snapshot.processes if row.pid == pid}


def pool_name(framework: str, name: str) -> str:
    """Write whose pool it is: ``GPU:0``, which is TensorFlow's, or ``PyTorch cuda:0``."""
    return name if framework == TENSORFLOW else f"{framework} {name}"


def signed_size(count: int | None) -> str:
    """Write a change with its sign: ``+1.2 GiB``, ``-64 MiB``, ``0``, and None as ``N/A``."""
    return rounded(count) if count is None else f"{'-' if count < 0 else '+'}{rounded(abs(count))}" if count else "0"


def peak_text(pool: PoolUse) -> str:
    """Write a pool's peak. One that is not exact is written as the most that it may have been."""
    return rounded(pool.peak) if pool.exact else f"at most {rounded(pool.peak)}"


def elapsed(seconds: float) -> str:
    """Write how long something took: ``0.042 s``, and from a second on as `phrases.seconds` does."""
    return phrases.seconds(seconds) if seconds >= 1 else f"{seconds:.3f} s"


def _summary(usage: Measurement) -> Message:
    text = ("{what}: " if usage.what else "") + "Measured: {took}" + (", ended by {error}" if usage.error else "")
    facts: dict[str, object] = {"what": phrases.clean(usage.what), "error": phrases.clean(usage.error)}
    if usage.pools:
        highest = max(usage.pools, key=lambda pool: pool.peak)
        text += ", peak {peak}" + (" on {pool}" if len(usage.pools) > 1 else "")
        text += ", {stayed} stayed" if usage.delta >= 0 else ", {stayed} given back"
        facts |= {"peak": peak_text(highest), "pool": pool_name(highest.framework, highest.name)}
        facts["stayed"] = rounded(abs(usage.delta)) if usage.delta else "nothing"
    return msg(text + ".", took=elapsed(usage.seconds), **facts)


def _pool_rows(usage: Measurement) -> list[tuple[str, ...]]:
    return [
        (
            pool_name(one.framework, one.name),
            rounded(one.before),
            rounded(one.after),
            signed_size(one.delta),
            peak_text(one),
            rounded(one.limit) if one.limit else "",
        )
        for one in usage.pools
    ]


def _held_rows(usage: Measurement) -> list[tuple[str, ...]]:
    return [(f"GPU {one.gpu}", rounded(one.before), rounded(one.after), signed_size(one.delta)) for one in usage.gpus]


def _remarks(usage: Measurement) -> list[Message | str]:
    lines: list[Message | str] = []
    if usage.trouble and usage.pools:
        lines.append(msg("What the driver gave is not known: {trouble}", trouble=usage.trouble))
    lines += [NO_POOL] * (not usage.pools)
    lines += [_UNLISTED] * any(one.after is None for one in usage.gpus)
    began = "{name} began to use the GPUs meanwhile, and the change of what is held has its CUDA context in it."
    lines += [msg(began, name=name) for name in usage.started]
    inexact = dict.fromkeys(one.framework for one in usage.pools if not one.exact)
    lines += [
        msg("{name}'s peak cannot be counted anew: it was not higher than before.", name=name) for name in inexact
    ]
    return [*lines, *[phrases.SIMULATED] * usage.simulated]
