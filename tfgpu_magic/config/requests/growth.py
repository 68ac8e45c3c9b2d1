"""`growth`: the request that memory is taken as it is needed, or all of it at once. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tfgpu_magic.config import arguments
from tfgpu_magic.config.memory import Figures
from tfgpu_magic.config.request import GpuRef, Memory
from tfgpu_magic.config.word import Word
from tfgpu_magic.errors import PolicyError

WORD = Word(
    "growth",
    ("growth [off]",),
    "memory growth on every visible GPU: take memory as it is needed",
    tried=("allow_growth", "grow", "set_memory_growth"),
    instead="Memory growth is `%tf_gpu growth`.",
)

_ON, _OFF = ("on", "true", "yes", "1"), ("off", "false", "no", "0")


@dataclass(frozen=True, slots=True)
class Growth(Memory):
    """Memory growth on every visible GPU, or on none: TensorFlow has no other scope."""

    limited: ClassVar[bool] = False
    of_free: ClassVar[bool] = False
    need: ClassVar[None] = None

    on: bool = True

    def __str__(self) -> str:
        return "growth" if self.on else "growth off"

    @property
    def grows(self) -> bool:
        """Whether growth is on."""
        return self.on

    def sizes(self, gpu: Figures) -> tuple[int, ...]:
        """Return no sizes: there is no limit."""
        del gpu
        return ()

    def growing(self, *, on: bool) -> Growth:
        """Return growth that is on, or off."""
        return Growth(on)

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


def read(values: Sequence[str], flags: Mapping[str, str]) -> Sequence[Growth]:
    """Parse what follows the word."""
    del flags
    setting = " ".join(values).lower() or "on"
    if setting not in (*_ON, *_OFF):
        raise PolicyError(f"growth is on or off, not {' '.join(values)!r}.{WORD.forms}")
    return [Growth(on=setting in _ON)]


def offers(typed: Sequence[str], gpus: Callable[[], Sequence[str]]) -> list[str]:
    """Return the values that may follow those that are typed already."""
    del gpus
    return [] if arguments.values(typed) else ["on", "off"]
