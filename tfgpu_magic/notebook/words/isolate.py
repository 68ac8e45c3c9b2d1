"""`%%tf_gpu isolate`: the cell below runs in a process of its own; in a line, `--warm` prepares for that."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from tfgpu_magic.errors import PolicyError
from tfgpu_magic.insight.why import explaining
from tfgpu_magic.isolate.cells import jobs, line
from tfgpu_magic.isolate.process.forkserver_client import FORK_SERVER
from tfgpu_magic.notebook.words.table import ISOLATED
from tfgpu_magic.policy import parser
from tfgpu_magic.policy.arguments import separate
from tfgpu_magic.policy.word import Line

_WARM = "--warm"
_NAMES = re.compile(r"(?:^| )-[io](?:[ =](?:\S*,)?)?$")
"""A pattern for the end of a line whose next word is a name of the notebook."""


def prepare(parsed: Line, cell: str, shell: Any) -> Callable[[], object]:
    """Return what runs the cell, or begins to."""
    asked = line.parse(parsed.rest, ISOLATED)
    return jobs.begin(
        shell,
        replace(asked, options=replace(asked.options, frameworks=parsed.frameworks)),
        cell,
        explaining.explain_call,
    )


def answer(parsed: Line) -> None:
    """Start the fork server for isolated cells, without waiting for it."""
    if parsed.rest != _WARM:
        raise PolicyError(f"`isolate` stands above a cell. {ISOLATED.usage}")
    FORK_SERVER.process()
    print("Getting ready for isolated cells: TensorFlow is being imported for them.")


def offers_above(
    tokens: Sequence[str], gpus: Callable[[], Sequence[str]], names: Callable[[], Iterable[str]]
) -> list[str]:
    """Return names, flags, their values, or words of a policy."""
    if _NAMES.search(" ".join(tokens)):
        return list(names())
    last = tokens[-1].rstrip("=") if tokens else ""
    if values := [value for flag in ISOLATED.flags if flag.takes and flag.name == last for value in flag.values]:
        return values
    try:
        policy, flags = separate(tokens, {flag.name: flag.takes for flag in ISOLATED.flags}, "")
    except PolicyError:
        return []
    # The words of a policy may be written as flags here.
    begun = re.sub(rf"(?:^| )--({'|'.join(word.name for word in parser.POLICY_WORDS)})\b", r";\1", " ".join(policy))
    offered = [flag.name for flag in ISOLATED.flags if flag.name not in flags]
    return parser.offers([begun.lstrip(";")], gpus) + offered
