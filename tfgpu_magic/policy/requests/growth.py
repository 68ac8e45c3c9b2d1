"""`growth`: the request that memory is taken as it is needed, and with `--release` given back; or all at once. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tfgpu_magic.ground import TENSORFLOW
from tfgpu_magic.ground.message import Line, msg
from tfgpu_magic.policy import arguments
from tfgpu_magic.policy.memory import Figures
from tfgpu_magic.policy.policy import GpuRef, Memory, Policy
from tfgpu_magic.policy.word import Flag, Word

NO_LIMIT = "With --release TensorFlow's memory comes from CUDA's own pool, and that keeps to no limit."
"""The price of it, and why it cannot be had together with a limit."""

WORD = Word(
    "growth",
    ("growth [off]", "growth --release"),
    "allocate memory on demand, on every visible GPU; --release also returns unused memory to the driver while the "
    "kernel runs, and allows no limit",
    (Flag("--release"),),
    apart=(("--release", NO_LIMIT),),
    tried=("allow_growth", "grow", "set_memory_growth"),
    instead=msg("Memory growth is `{line}`.", line=Line("growth")),
)

_ON, _OFF = ("on", "true", "yes", "1"), ("off", "false", "no", "0")


@dataclass(frozen=True, slots=True)
class Growth(Memory):
    """Memory growth on every visible GPU, or on none: TensorFlow has no other scope."""

    limited: ClassVar[bool] = False
    of_free: ClassVar[bool] = False
    need: ClassVar[None] = None

    on: bool = True
    release: bool = False

    def __str__(self) -> str:
        return f"growth{' --release' * self.release}" if self.on else "growth off"

    @property
    def grows(self) -> bool:
        """Whether growth is on."""
        return self.on

    @property
    def releases(self) -> bool:
        """Whether it gives memory back."""
        return self.release

    def for_framework(self, framework: str) -> Growth:
        """Return plain growth for all but TensorFlow: no other framework has such an allocator."""
        return self if framework == TENSORFLOW else Growth(self.on)

    def sizes(self, gpu: Figures) -> tuple[int, ...]:
        """Return no sizes: there is no limit."""
        del gpu
        return ()

    def growing(self, *, on: bool) -> Growth:
        """Return growth that is on, or off."""
        return Growth(on, self.release and on)

    def on_gpu(self, gpu: GpuRef | None) -> Growth:
        """Return the request itself, which is about every GPU."""
        del gpu
        return self

    def less(self, size: int) -> None:
        """Return None: there is no smaller growth."""

    def settled(self, limits: tuple[int, ...], gpu: GpuRef | None) -> Growth:
        """Return the request itself, which is about every GPU."""
        del limits, gpu
        return self


GROWS = Policy((Growth(),))
"""The least policy, always possible: TensorFlow takes what it needs, and not all that there is."""


def read(values: Sequence[str], flags: Mapping[str, str]) -> Sequence[Growth]:
    """Parse what follows the word."""
    setting = " ".join(values).lower() or "on"
    if setting not in (*_ON, *_OFF):
        raise WORD.error(f"growth is on or off, not {' '.join(values)!r}.")
    release = "--release" in flags
    if release and setting in _OFF:
        raise WORD.error("What is taken at once is not given back: `growth off` has no --release.")
    return [Growth(on=setting in _ON, release=release)]


offers = arguments.offering("on", "off")
