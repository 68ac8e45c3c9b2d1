"""`split`: the request for logical GPUs, or for logical CPUs with `--cpu`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tfgpu_magic.errors import PolicyError
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.policy import arguments, memory
from tfgpu_magic.policy.memory import Amount, Figures, amount_text, part, whole
from tfgpu_magic.policy.policy import Cpus, GpuRef, Sized
from tfgpu_magic.policy.word import Flag, Word

WORD = Word(
    "split",
    ("split 2", "split 1GiB 2GiB --gpu 0", "split 4 --cpu"),
    "make logical GPUs on every visible GPU: equal shares of its free memory, less what TensorFlow leaves to CUDA's "
    "libraries, or named sizes; --cpu splits the CPU instead; --grow as in limit",
    (Flag("--gpu", "N"), Flag("--cpu"), Flag("--grow")),
)


@dataclass(frozen=True, slots=True)
class Split(Sized):
    """Logical GPUs on every visible GPU (`gpu` None) or on one: equal shares of what is free, or named sizes."""

    of_any_framework: ClassVar[bool] = False  # only TensorFlow has logical GPUs

    parts: int | tuple[Amount, ...]
    gpu: GpuRef | None = None
    grow: bool = False

    def __str__(self) -> str:
        parts = str(self.parts) if isinstance(self.parts, int) else " ".join(map(amount_text, self.parts))
        target = "" if self.gpu is None else f" --gpu {self.gpu}"
        return f"split {parts}{target}{' --grow' * self.grow}"

    @property
    def of_free(self) -> bool:
        """Whether it is equal shares of what is free."""
        return isinstance(self.parts, int)

    @property
    def need(self) -> Amount | None:
        """The sum of the named sizes; None for equal shares."""
        return None if isinstance(self.parts, int) else memory.add(self.parts)

    def sizes(self, gpu: Figures) -> tuple[int, ...]:
        """Return the parts in bytes."""
        if isinstance(self.parts, int):
            return (whole(gpu.spare // self.parts),) * self.parts
        return tuple(map(gpu.bytes, self.parts))

    def less(self, size: int) -> Split | None:
        """Return the same number of equal shares of what is free; None with one part, or with equal shares already."""
        del size
        several = not isinstance(self.parts, int) and len(self.parts) > 1
        return replace(self, parts=len(self.parts)) if several else None  # type: ignore[arg-type]

    def within(self, amount: Amount) -> Split:
        """Return as many equal parts of the amount."""
        count = self.parts if isinstance(self.parts, int) else len(self.parts)
        return replace(self, parts=(part(amount, count),) * count)

    def settled(self, limits: tuple[int, ...], gpu: GpuRef | None) -> Split:
        """Return the same with named sizes in bytes; equal shares stay as they are."""
        return Split(self.parts if isinstance(self.parts, int) else limits, gpu, self.grow)

    def wanted(self, limits: tuple[int, ...]) -> str:
        """Return the sum of the parts, and the parts."""
        total = rounded(sum(limits))
        if isinstance(self.parts, int) or len(self.parts) == 1:
            return f"the limit is {total}"
        return f"{' + '.join(map(amount_text, self.parts))} is {total}"


def read(values: Sequence[str], flags: Mapping[str, str]) -> Sequence[Split | Cpus]:
    """Parse what follows the word."""
    sizes = arguments.parts(values)
    if not sizes:
        raise WORD.error("Split into what?")
    counted = len(sizes) == 1 and arguments.is_number(sizes[0])
    count = arguments.count(sizes[0], 2, "A device is split into") if counted else None
    if "--cpu" in flags:
        if count is None or len(flags) > 1:
            raise WORD.error("The CPU is split into a number of equal parts, and that is all.")
        return [Cpus(count)]
    if len(sizes) > arguments.MOST_PARTS:
        raise PolicyError(f"{len(sizes)} parts are too many; {arguments.MOST_PARTS} is the most.")
    parts = count or tuple(map(arguments.amount, sizes))
    return [Split(parts, gpu, grow="--grow" in flags) for gpu in arguments.flagged(flags)]


offers = arguments.offering("2", "4")
