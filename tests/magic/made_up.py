"""Two words as a stranger would add them: a file each, here one for both, and their lines in the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tfgpu_magic.config.word import Above, Flag, Line, Word


def _bark(said: Line) -> str:
    return " ".join(["woof"] * int(said.rest or 1))


def _howl(said: Line, cell: str, _: Any) -> Callable[[], object]:
    return lambda: f"{cell.strip()} {said.rest}"


def _flags(_: Sequence[str], gpus: Callable[[], Sequence[str]], names: Callable[[], Iterable[str]]) -> list[str]:
    return ["--loud", *gpus(), *names()]


BARK = Word(
    "bark",
    ("bark [N]",),
    "says woof, N times",
    flags=(("--twice", False),),
    offers=lambda said, _: [] if said else ["2", "3"],
    tried=("woof",),
    instead="A dog is `%tf_gpu bark`.",
    answer=_bark,
)
HOWL = Word(
    "howl",
    ("%%tf_gpu howl",),
    "says the cell",
    above=Above((Flag("--loud", "N", "so loud"),), "WORDS", "Write it.", "A wolf says the cell.", _flags, _howl),
)
