"""`%tf_gpu park` and `unpark`: this notebook's GPU state goes to host memory, and is back before its next cell runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any

from IPython.display import display

from tfgpu_magic import host
from tfgpu_magic.errors import Refused
from tfgpu_magic.model.answer import Document
from tfgpu_magic.monitor.owners.pids import notebook_of
from tfgpu_magic.parking import ask_kernel, automatic, other_notebooks, own_process
from tfgpu_magic.parking.inside import ipython
from tfgpu_magic.parking.mechanism import check, described
from tfgpu_magic.parking.own_process import of as _of
from tfgpu_magic.parking.own_process import staying
from tfgpu_magic.policy.word import Line
from tfgpu_magic.units import rounded

_CHECK = "--check"


def answer(line: Line) -> Document | None:
    """Say what a line asks for, or have it done when the cell has ended."""
    shell = host.shell()
    if shell is None:
        raise Refused("A notebook or an IPython session can be parked, and this is a program.", verdict="")
    if line.word.name == "unpark":
        return Document(f"This {host.here()} is not parked: a cell runs only once all is back on the GPU.")
    if line.rest == _CHECK:
        return _checked(shell)
    if automatic.AUTO in line.rest or automatic.WHEN_NEEDED in line.rest:
        return automatic.answer(line, shell, _of(shell)[0])
    if line.rest.startswith("-"):
        raise Refused(f"`{line.text}` is not understood.{line.word.forms}", verdict="")
    if line.rest:
        pid, called = other_notebooks.find(line.rest, notebook_of(shell))
        if pid != os.getpid():
            return other_notebooks.park(pid, called)
    ipython.at_end_of_cell(shell, partial(_park, shell))
    return None


def offers(tokens: Sequence[str], _: Callable[[], Sequence[str]]) -> list[str]:
    """Return the times of `--auto`, or the names of other notebooks."""
    if tokens:
        return [*automatic.TIMES] if tokens[-1] == automatic.AUTO else []
    return [PurePath(one.notebook).name for one in ask_kernel.reports() if one.kernel and one.pid > 0]


def _checked(shell: Any) -> Document:
    found = check()
    against = [*_of(shell)[0].against(), *found.reasons]
    first = f"{rounded(found.leaving)} can go to host memory; {staying(found.stays)}. Nothing was changed."
    return Document(
        *[first] * bool(found.leaving), *(f"It cannot be parked now: {one}" for one in against), *described(found.stays)
    )


def _park(shell: Any) -> None:
    """Park this process, and show below the cell what became of it."""
    outcome = own_process.park(shell)
    first, *rest = [*outcome.lines] if outcome.parked else ["Not parked.", *outcome.lines]
    back = ["All is back before the next cell runs."] * outcome.parked
    display(Document(first, *back, *rest))  # type: ignore[no-untyped-call]  # IPython's
