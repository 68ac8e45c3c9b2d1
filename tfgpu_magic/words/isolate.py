"""`%%tf_gpu isolate`: the cell below runs in a process of its own; in a line, `--warm` prepares for that."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from tfgpu_magic.config import completions
from tfgpu_magic.config.flags import part
from tfgpu_magic.config.vocabulary import POLICY_WORDS
from tfgpu_magic.config.word import Above, Flag, Line, Word
from tfgpu_magic.errors import PolicyError

FLAGS = (
    Flag(
        "-i",
        "NAMES",
        "send only these names (`-` for none), or with `+x,y` these too; else those that the cell reads",
        tried=("--input", "--inputs", "--in", "--send", "--names"),
    ),
    Flag(
        "-o",
        "NAMES",
        "bring these names back, as in `-o model,history`",
        tried=("--output", "--outputs", "--out", "--bring", "--return"),
    ),
    Flag("--gpus", "N", "see only N GPUs, the free ones with most memory", values=("1", "2")),
    Flag("--timeout", "TIME", "end it after so long: 90s, 10m, 2h", values=("90s", "10m", "2h")),
    Flag(
        "--detach",
        "",
        "don't wait: the cell runs in the background, and `%tf_gpu jobs` lists it",
        tried=("--background", "--bg", "--async", "--nowait", "--no-wait"),
    ),
)
_WARM = "--warm"
_USAGE = (
    f"Write `%%tf_gpu isolate {' '.join(f'[{flag.usage}]' for flag in FLAGS)} [POLICY]`, "
    "with a policy as in `limit 2GiB` or `--limit 2GiB`."
)

_NAMES = re.compile(r"(?:^| )-[io](?:[ =](?:\S*,)?)?$")
"""A pattern for the end of a line whose next word is a name of the notebook."""


def _prepare(parsed: Line, cell: str, shell: Any) -> Callable[[], object]:
    from tfgpu_magic.isolate.cells import jobs, line  # few users need isolated calls, and these are slow to import

    asked = line.parse(parsed.rest, _ABOVE)
    return jobs.begin(shell, replace(asked, options=replace(asked.options, frameworks=parsed.frameworks)), cell)


def _answer(line: Line) -> None:
    """Start the fork server for isolated cells, without waiting for it."""
    if line.rest != _WARM:
        raise PolicyError(f"`isolate` stands above a cell: {_USAGE}")
    from tfgpu_magic.isolate.pool import FORK_SERVER  # as above

    FORK_SERVER.process()
    print("Getting ready for isolated cells: TensorFlow is being imported for them.")


def _offers(tokens: Sequence[str], gpus: Callable[[], Sequence[str]], names: Callable[[], Iterable[str]]) -> list[str]:
    if _NAMES.search(" ".join(tokens)):
        return list(names())
    last = tokens[-1].rstrip("=") if tokens else ""
    if values := [value for flag in FLAGS if flag.takes and flag.name == last for value in flag.values]:
        return values
    try:
        policy, flags = part(tokens, {flag.name: flag.takes for flag in FLAGS}, "")
    except PolicyError:
        return []
    # The words of a policy may be written as flags here.
    begun = re.sub(rf"(?:^| )--({'|'.join(word.name for word in POLICY_WORDS)})\b", r";\1", " ".join(policy))
    return completions.policy([begun.lstrip(";")], gpus) + [flag.name for flag in FLAGS if flag.name not in flags]


_ABOVE = Above(
    FLAGS,
    "WORDS",
    _USAGE,
    "Above a cell, `%%tf_gpu isolate` runs it in a process of its own. The names that it reads are sent along, those "
    "after -o are brought back, and all its GPU memory comes back. WORDS are a policy for that process; "
    "`--limit 2GiB` is `limit 2GiB`.",
    _offers,
    _prepare,
)
WORD = Word(
    "isolate",
    ("%%tf_gpu isolate", "%%tf_gpu isolate -o model limit 2GiB", "isolate --warm"),
    "run the cell in a process of its own, which gives its GPU memory back; --warm gets ready for that",
    flags=((_WARM, False),),
    tried=("run", "exec", "background"),
    instead="Above a cell, `%%tf_gpu isolate` runs it in a process of its own.",
    answer=_answer,
    above=_ABOVE,
)
