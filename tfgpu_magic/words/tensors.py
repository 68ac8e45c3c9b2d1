"""`%tf_gpu tensors`: what holds this notebook's memory of the GPUs, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tfgpu_magic.config.word import Line, Word
from tfgpu_magic.errors import PolicyError

if TYPE_CHECKING:
    from tfgpu_magic.views.tensors import Tensors

_ALL = "--all"


def _answer(line: Line) -> Tensors:
    from tfgpu_magic import holdings  # all words are imported when one is said, and what this one needs is not small

    if line.rest not in ("", _ALL):
        raise PolicyError(f"`tensors {line.rest}` cannot be shown.{WORD.forms}")
    return holdings.tensors(everything=line.rest == _ALL)


def _offers(_tokens: Sequence[str], _gpus: Callable[[], Sequence[str]]) -> list[str]:
    return []


WORD = Word(
    "tensors",
    ("tensors", "tensors --all"),
    "what holds this notebook's memory of the GPUs, by name: variables, models, results, errors; the largest, or all",
    flags=((_ALL, False),),
    offers=_offers,
    tried=("arrays", "objects", "variables", "vars", "who", "whos", "live_arrays"),
    instead="What holds this notebook's memory is `%tf_gpu tensors`.",
    answer=_answer,
)
