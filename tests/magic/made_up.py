"""Two words as a stranger would add them: their entries in the table, and a module, here one for both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tfgpu_magic.config.word import Above, Flag, Line, Word

BARK = Word(
    "bark",
    ("bark [N]",),
    "says woof, N times",
    flags=(("--twice", False),),
    takes=True,
    tried=("woof",),
    instead="A dog is `%tf_gpu bark`.",
    home=__name__,
)
HOWL = Word(
    "howl",
    ("%%tf_gpu howl",),
    "says the cell",
    above=Above((Flag("--loud", "N", "so loud"),), "WORDS", "Write it.", "A wolf says the cell."),
    home=__name__,
)


def answer(said: Line) -> str:
    return " ".join(["woof"] * int(said.rest or 1))


def offers(said: Sequence[str], _: Callable[[], Sequence[str]]) -> list[str]:
    return [] if said else ["2", "3"]


def prepare(said: Line, cell: str, _: Any) -> Callable[[], object]:
    return lambda: f"{cell.strip()} {said.rest}"


def offers_above(_: Sequence[str], gpus: Callable[[], Sequence[str]], names: Callable[[], Iterable[str]]) -> list[str]:
    return ["--loud", *gpus(), *names()]
