"""`%tf_gpu free`: lets go of what IPython keeps and of names, and says what became free."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tfgpu_magic.insight.freeing import Freed, free
from tfgpu_magic.insight.objects import roots
from tfgpu_magic.policy.word import ParsedLine


def run(line: ParsedLine) -> Freed:
    """Free it, and return what became free."""
    return free(*(name for name in re.split(r"[\s,;]+", line.rest) if name))


def completions(tokens: Sequence[str], _gpus: Callable[[], Sequence[str]]) -> list[str]:
    """Return the notebook's names."""
    return [name for name in roots.notebook_names() if not name.startswith("_") and name not in tokens]
