"""`pick`: the request for the GPUs with most free memory. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tfgpu_magic.errors import PolicyError, Refused
from tfgpu_magic.ground.message import Line, Message, join_lines, msg
from tfgpu_magic.ground.snapshot import Gpu
from tfgpu_magic.ground.units import MIB, rounded
from tfgpu_magic.policy import arguments
from tfgpu_magic.policy.memory import Amount, amount_bytes, amount_text, context_bytes
from tfgpu_magic.policy.policy import Candidates, Choice, GpuRef
from tfgpu_magic.policy.requests.visible import Visible
from tfgpu_magic.policy.word import Flag, Word

WORD = Word(
    "pick",
    ("pick [N] [--need 6GiB] [--or-cpu]",),
    "use only the N GPUs with the most free memory (default 1); --need sets how much each must have free; --or-cpu "
    "falls back to the CPU",
    (Flag("--need", "SIZE", values=arguments.SIZES), Flag("--or-cpu")),
)

_LEAST_DIFFERENCE = 64 * MIB
"""Bytes by which free memory must differ to count: even the smallest context is larger."""


@dataclass(frozen=True, slots=True)
class Pick(Choice):
    """The `count` GPUs with most free memory, each with at least `need` free; with `or_cpu`, else none."""

    picks: ClassVar[bool] = True

    count: int = 1
    need: Amount | None = None
    or_cpu: bool = False

    def __str__(self) -> str:
        count = f" {self.count}" if self.count != 1 else ""
        need = f" --need {amount_text(self.need)}" if self.need is not None else ""
        return f"pick{count}{need}{' --or-cpu' * self.or_cpu}"

    @property
    def names_gpus(self) -> bool:
        """Whether GPUs must be there: it counts them."""
        return not self.or_cpu

    def pick(self, gpus: Candidates) -> Sequence[Gpu]:
        """Return the GPUs with most free memory; of equals those that the fewest kernels have picked."""
        enough = [gpu for gpu in gpus.useful if (gpu.free or 0) >= self._needed(gpu)]
        if len(enough) < self.count:
            raise self._too_few(len(enough), gpus.given, gpus.bound)
        chosen: list[Gpu] = []
        while len(chosen) < self.count:
            left = [gpu for gpu in enough if gpu not in chosen]
            chosen.append(_freest(left, gpus.claims))
        return chosen

    def settled(self, gpus: Sequence[GpuRef]) -> Visible:
        """Return these GPUs by name, so that later requests do not pick again."""
        return Visible(tuple(gpus))

    def easier(self, gpus: Sequence[GpuRef]) -> Iterator[Choice]:
        """Yield picks without the needed amount, and of fewer GPUs; without a GPU, `visible none`."""
        if not gpus:
            yield Visible(())
            return
        for need in dict.fromkeys((self.need, None)):
            for count in range(min(self.count, len(gpus)), 0, -1):
                yield Pick(count, need, self.or_cpu)

    def _needed(self, gpu: Gpu) -> int:
        """Return the bytes that must be free: what is needed, and the context that comes with it."""
        return (0 if self.need is None else amount_bytes(self.need, gpu.capacity or 0)) + context_bytes(gpu.total or 0)

    def _too_few(self, enough: int, given: Sequence[Gpu], bound: Message | None) -> Refused:
        """Return the error for more GPUs than have so much free, among those that this process may have."""
        what = "1 GPU" if self.count == 1 else f"{self.count} GPUs"
        if self.need is not None:
            what = f"{what} with {amount_text(self.need)} free, and room for CUDA's context,"
        can = f"{enough} can" if enough else "no GPU has it"
        lines = [msg("{what} cannot be had now; {can}.", what=what, can=can)]
        for gpu in given:
            figure = gpu.error if gpu.free is None else f"{rounded(gpu.free)} free"
            lines.append(msg("  GPU {gpu}: {figure}", gpu=gpu.label, figure=figure))
        return Refused(join_lines([*lines, bound and msg("  {bound}", bound=bound)]))


def _freest(gpus: Sequence[Gpu], claims: Mapping[str, float]) -> Gpu:
    """Return the GPU with most free memory; GPUs that differ by less than a context are equal.

    What other kernels have just picked may not show in free memory yet. Of equal GPUs it is one that the fewest of this
    user's kernels have picked, then one with most free memory, as other users' contexts do show; and then the random
    tie-breaker decides.
    """
    most = max(gpu.free or 0 for gpu in gpus)
    equal = [gpu for gpu in gpus if most - (gpu.free or 0) < context_bytes(gpu.total or 0)]
    taken = [claims.get(str(gpu.uuid), 0.0) for gpu in equal]
    ranked = zip(taken, equal, strict=True)
    return min(
        ranked, key=lambda one: (int(one[0]), -((one[1].free or 0) // _LEAST_DIFFERENCE), one[0], -(one[1].free or 0))
    )[1]


def read(values: Sequence[str], flags: Mapping[str, str]) -> Sequence[Pick]:
    """Parse what follows the word."""
    if len(values) > 1:
        raise WORD.error(f"How many GPUs? {' '.join(values)!r} is not one number.")
    if values and values[0].lower() == "all":
        raise PolicyError(msg("How many GPUs? For all of them, write `{line}`.", line=Line("visible all")))
    count = arguments.count(values[0], 1, "GPUs to pick are") if values else 1
    need = arguments.amount(flags["--need"]) if "--need" in flags else None
    return [Pick(count, need, "--or-cpu" in flags)]


offers = arguments.offering()
