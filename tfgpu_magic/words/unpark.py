"""`%tf_gpu unpark`: brings a parked notebook back to the GPU before its next cell does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfgpu_magic.config.word import Line, Word
from tfgpu_magic.host import here
from tfgpu_magic.words.park import inside


def _answer(line: Line) -> None:
    if line.rest:
        print(inside().unpark_other(line.rest))
    else:  # a cell of a parked notebook has brought it back before it runs
        print(f"This {here()} is not parked: what it holds of the GPUs is there.")


def _offers(tokens: Sequence[str], _: Callable[[], Sequence[str]]) -> list[str]:
    return [] if tokens else list(inside().parked_names())


WORD = Word(
    "unpark",
    ("unpark", "unpark train.ipynb"),
    "brings a parked notebook back to the GPU, as its next cell does by itself",
    offers=_offers,
    tried=("resume", "wake", "restore", "unpause"),
    instead="`%tf_gpu unpark train.ipynb` brings a parked notebook back; its next cell does so by itself.",
    answer=_answer,
)
