"""`default`: what was asked before is dropped. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tfgpu_magic.config.request import Reset
from tfgpu_magic.config.word import Word
from tfgpu_magic.errors import PolicyError

WORD = Word("default", ("default",), "drop what was asked before and is not in force yet")


@dataclass(frozen=True, slots=True)
class Default(Reset):
    """Nothing: whatever was asked before is dropped."""

    def __str__(self) -> str:
        return "default"


def read(values: Sequence[str], flags: Mapping[str, str]) -> Sequence[Default]:
    """Read what follows the word, which is nothing."""
    del flags
    if values:
        raise PolicyError(f"default stands alone; {' '.join(values)!r} is too much.")
    return [Default()]


def offers(said: Sequence[str], gpus: Callable[[], Sequence[str]]) -> list[str]:
    """Return no values."""
    del said, gpus
    return []
