"""`limit`: the request for a size or a share of every GPU, or GPU by GPU. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tfgpu_magic.ground.message import Line, msg
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.policy import arguments
from tfgpu_magic.policy.memory import Amount, Figures, Percentage, amount_text, whole
from tfgpu_magic.policy.policy import GpuRef, Sized
from tfgpu_magic.policy.word import Flag, Word

EXAMPLES = msg(
    "A part of every GPU's memory is `{share}`, a size `{size}`.", share=Line("limit 40%"), size=Line("limit 2GiB")
)
"""What to write, for users who have tried another word."""

WORD = Word(
    "limit",
    ("limit 2GiB", "limit 40%", "limit 0=1GiB 1=4GiB 2=25%", "limit 6GiB --grow"),
    "set a memory limit on every visible GPU, or GPU by GPU, and take that memory at once; --grow makes it a cap that "
    "memory grows up to on demand",
    (Flag("--grow"), Flag("--gpu", "N")),
    tried=("fraction", "percent", "per_process_gpu_memory_fraction", "memory_limit", "max"),
    instead=EXAMPLES,
)


@dataclass(frozen=True, slots=True)
class Limit(Sized):
    """A memory limit on every visible GPU (`gpu` None) or on one; `grow` makes it a cap that is grown into."""

    of_free: ClassVar[bool] = False

    amount: Amount
    gpu: GpuRef | None = None
    grow: bool = False

    def __str__(self) -> str:
        target = "" if self.gpu is None else f"{self.gpu}="
        return f"limit {target}{amount_text(self.amount)}{' --grow' * self.grow}"

    @property
    def need(self) -> Amount:
        """The amount of the limit."""
        return self.amount

    def sizes(self, gpu: Figures) -> tuple[int, ...]:
        """Return the amount in bytes."""
        return (gpu.bytes(self.amount),)

    def less(self, size: int) -> Limit:
        """Return a limit of that size."""
        return replace(self, amount=size)

    def within(self, amount: Amount) -> Limit:
        """Return a limit of that amount."""
        return replace(self, amount=amount)

    def settled(self, limits: tuple[int, ...], gpu: GpuRef | None) -> Limit:
        """Return the same in bytes."""
        return Limit(limits[0], gpu, self.grow)

    def leased(self, limits: tuple[int, ...], usable: int, context: int) -> tuple[int, ...]:
        """Return the limit of an isolated call.

        A percentage is a share of what processes can have of the GPU, and covers all that the call's process holds,
        with CUDA's context: four calls at 25% fit on one GPU.
        """
        return (whole(max(0, self.amount.of(usable) - context)),) if isinstance(self.amount, Percentage) else limits

    def wanted(self, limits: tuple[int, ...]) -> str:
        """Return the limit in bytes, a percentage beside it."""
        total = rounded(sum(limits))
        if isinstance(self.amount, Percentage):
            return f"{self.amount} is {total}"
        return f"the limit is {total}"

    def smallest(self, limits: tuple[int, ...]) -> str:
        """Return the amount as it was written."""
        del limits
        return amount_text(self.amount)


def read(values: Sequence[str], flags: Mapping[str, str]) -> Sequence[Limit]:
    """Parse what follows the word."""
    limits: dict[GpuRef | None, Limit] = {}
    for value in arguments.parts(values):
        target, equals, size = value.rpartition("=")
        if equals and not size:
            raise WORD.error(f"A limit of how much? {value!r} has no size.")
        if equals and "--gpu" in flags:
            raise WORD.error(f"GPU {target} or GPU {flags['--gpu']}? Name the GPU in one way only.")
        amount = arguments.amount(size)
        for gpu in map(arguments.gpu, arguments.listed([target])) if equals else arguments.flagged(flags):
            if gpu in limits:
                raise WORD.error(f"{'Every GPU' if gpu is None else f'GPU {gpu}'} has two limits.")
            limits[gpu] = Limit(amount, gpu, grow="--grow" in flags)
    if not limits:
        raise WORD.error("A limit of how much?")
    return [limits[gpu] for gpu in sorted(limits, key=lambda gpu: gpu is not None)]  # the limit for every GPU first


def offers(typed: Sequence[str], gpus: Callable[[], Sequence[str]]) -> list[str]:
    """Return the values that may follow those that are typed already."""
    values = arguments.values(typed)
    named = [f"{gpu}=" for gpu in gpus() if not any(value.startswith(f"{gpu}=") for value in values)]
    return named + ([] if any("=" not in value for value in values) else list(arguments.SIZES))
