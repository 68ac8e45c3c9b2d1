"""`%%tf_gpu isolate`: the cell below runs in a process of its own; in a line, `--warm` prepares for that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tfgpu_magic.errors import PolicyError
from tfgpu_magic.insight.why import explaining
from tfgpu_magic.isolate.cells import jobs, line
from tfgpu_magic.isolate.process.forkserver_client import FORK_SERVER
from tfgpu_magic.notebook.words.table import ISOLATED
from tfgpu_magic.policy.word import Line

_WARM = "--warm"


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
