"""`default`: the request to drop what was asked before. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfgpu_magic.errors import PolicyError
from tfgpu_magic.ground.message import Line, msg
from tfgpu_magic.policy import arguments
from tfgpu_magic.policy.policy import Reset
from tfgpu_magic.policy.word import Word

DROPS = msg(
    "`{line}` drops what was asked and is not in force yet; what is in force ends with a restart only.",
    line=Line("default"),
)
"""What it does, for users who have tried another word."""

WORD = Word(
    "default",
    ("default",),
    "drop the policy that is not in force yet",
    tried=("off", "undo", "drop"),
    instead=DROPS,
)


@dataclass(frozen=True, slots=True)
class Default(Reset):
    """The request to drop whatever was asked before."""

    def __str__(self) -> str:
        return "default"


def read(values: Sequence[str], flags: Mapping[str, str]) -> Sequence[Default]:
    """Parse what follows the word, which must be nothing."""
    del flags
    if values:
        raise PolicyError(f"default stands alone; {' '.join(values)!r} is too much.")
    return [Default()]


offers = arguments.offering()
