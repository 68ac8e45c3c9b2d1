"""`%tf_gpu free`: lets go of what IPython keeps and of names, and says what became free."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tfgpu_magic.config.word import Line, Word

if TYPE_CHECKING:
    from tfgpu_magic.views.freed import Freed


def _answer(line: Line) -> Freed:
    from tfgpu_magic import holdings  # all words are imported when one is said, and what this one needs is not small

    return holdings.free(*(name for name in re.split(r"[\s,;]+", line.rest) if name))


def _offers(tokens: Sequence[str], _gpus: Callable[[], Sequence[str]]) -> list[str]:
    from tfgpu_magic.insight import shell  # as above

    return [name for name in shell.names() if not name.startswith("_") and name not in tokens]


WORD = Word(
    "free",
    ("free", "free x,model"),
    "lets go of what IPython keeps of results and errors, of these names and of garbage, and says what became "
    "free and what went back to the driver",
    offers=_offers,
    tried=("release", "empty_cache", "gc", "collect", "del", "delete"),
    instead="`%tf_gpu free` lets go of what nobody needs, and of names: `%tf_gpu free x,model`.",
    answer=_answer,
)
