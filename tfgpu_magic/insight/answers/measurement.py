"""The answer of `measure`: what a part of a program did to GPU memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfgpu_magic.model import phrases
from tfgpu_magic.model.answer import Answer, Part, grid, headline
from tfgpu_magic.model.report import TENSORFLOW
from tfgpu_magic.units import rounded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfgpu_magic.insight.usage import Held, PoolUse

_HEADS = ("<In use", ">Before", ">After", ">Change", ">Peak", ">Limit")
_HELD_HEADS = ("<Held", ">Before", ">After", ">Change")

NO_POOL = "No framework uses a GPU here: TensorFlow, PyTorch or JAX would have figures."
_UNLISTED = "The driver does not name this process, as in some containers: what it holds is not known."


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Measurement(Answer):
    """What a part of a program did to GPU memory. Sizes are bytes.

    Attributes:
        seconds: how long it took.
        pools: a `PoolUse` for each pool of the frameworks that use a GPU; empty where none does.
        gpus: a `Held` for each GPU of which this process held memory; empty where it held none.
        asked: whether the driver was asked.
        trouble: why it has no figures, in words; empty where it has.
        started: the frameworks that began to use a GPU meanwhile.
        error: the name of the class of the error that ended it; empty where none did.
        simulated: whether the GPUs are those of a simulated machine.
        what: what was measured, as people call it; empty where that is plain.
    """

    seconds: float
    pools: tuple[PoolUse, ...] = ()
    gpus: tuple[Held, ...] = ()
    asked: bool = False
    trouble: str = ""
    started: tuple[str, ...] = ()
    error: str = ""
    simulated: bool = False
    what: str = ""

    @property
    def peak(self) -> int:
        """The highest peak of any pool; 0 where no framework uses a GPU."""
        return max((pool.peak for pool in self.pools), default=0)

    @property
    def delta(self) -> int:
        """What stayed in use of all pools together, less what was given back."""
        return sum(pool.delta for pool in self.pools)

    @property
    def held(self) -> int | None:
        """What came to what the driver gives this process, on all GPUs together; None where that is unknown."""
        changes = [gpu.delta for gpu in self.gpus if gpu.delta is not None]
        known = self.asked and not self.trouble and len(changes) == len(self.gpus)
        return sum(changes) if known else None

    def _parts(self) -> Iterable[Part | str]:
        tables = grid(_HEADS, _pools(self), long=True), grid(_HELD_HEADS, _held(self))
        return [headline(_summary(self)), *tables, *_remarks(self)]


def pool_name(framework: str, name: str) -> str:
    """Write whose pool it is: ``GPU:0``, which is TensorFlow's, or ``PyTorch cuda:0``."""
    return name if framework == TENSORFLOW else f"{framework} {name}"


def change(count: int | None) -> str:
    """Write a change with its sign: ``+1.2 GiB``, ``-64 MiB``, ``0``; None as ``N/A``."""
    return rounded(count) if count is None else f"{'-' if count < 0 else '+'}{rounded(abs(count))}" if count else "0"


def peak(pool: PoolUse) -> str:
    """Write a pool's peak; one that is not exact as the most that it may have been."""
    return rounded(pool.peak) if pool.exact else f"at most {rounded(pool.peak)}"


def took(seconds: float) -> str:
    """Write how long something took: ``0.042 s``, and from a second on as `phrases.seconds` does."""
    return phrases.seconds(seconds) if seconds >= 1 else f"{seconds:.3f} s"


def _summary(usage: Measurement) -> str:
    what = f"{phrases.plain(usage.what)}: " if usage.what else ""
    ended = f", ended by {phrases.plain(usage.error)}" if usage.error else ""
    figures = ""
    if usage.pools:
        highest = max(usage.pools, key=lambda pool: pool.peak)
        where = f" on {pool_name(highest.framework, highest.name)}" if len(usage.pools) > 1 else ""
        figures = f", peak {peak(highest)}{where}, {_stayed(usage.delta)}"
    return f"{what}Measured: {took(usage.seconds)}{ended}{figures}."


def _stayed(delta: int) -> str:
    if not delta:
        return "nothing stayed"
    return f"{rounded(delta)} stayed" if delta > 0 else f"{rounded(-delta)} given back"


def _pools(usage: Measurement) -> list[tuple[str, ...]]:
    return [
        (
            pool_name(one.framework, one.name),
            rounded(one.before),
            rounded(one.after),
            change(one.delta),
            peak(one),
            rounded(one.limit) if one.limit else "",
        )
        for one in usage.pools
    ]


def _held(usage: Measurement) -> list[tuple[str, ...]]:
    return [(f"GPU {one.gpu}", rounded(one.before), rounded(one.after), change(one.delta)) for one in usage.gpus]


def _remarks(usage: Measurement) -> list[str]:
    lines = [f"What the driver gave is not known: {usage.trouble}"] if usage.trouble and usage.pools else []
    if not usage.pools:
        lines.append(NO_POOL)
    if any(one.after is None for one in usage.gpus):
        lines.append(_UNLISTED)
    lines += [
        f"{framework} began to use the GPUs meanwhile, and the change of what is held has its CUDA context in it."
        for framework in usage.started
    ]
    lines += [
        f"{framework}'s peak cannot be counted anew: it was not higher than before."
        for framework in dict.fromkeys(one.framework for one in usage.pools if not one.exact)
    ]
    return [*lines, phrases.SIMULATED] if usage.simulated else lines
