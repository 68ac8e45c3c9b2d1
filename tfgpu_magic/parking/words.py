"""`%tf_gpu park` and `unpark`: this notebook's GPU state goes to host memory, and is back before its next cell runs.

`unpark --without-gpu` alone finds this process still parked: the gate has let its cell pass.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any

from tfgpu_magic.errors import Refused
from tfgpu_magic.ground import host
from tfgpu_magic.ground.answer import Document
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.machine.owners.pids import notebook_of
from tfgpu_magic.parking import automatic, other_notebooks
from tfgpu_magic.parking.arrays import MovedArrays, about, check, described
from tfgpu_magic.parking.kernel import ipython
from tfgpu_magic.parking.kernel.gate import ProgressDisplay
from tfgpu_magic.parking.kernel.process import WITHOUT
from tfgpu_magic.parking.this_notebook import park, staying, this_process
from tfgpu_magic.policy.word import ParsedLine

_CHECK = "--check"


def run(line: ParsedLine) -> Document | None:
    """Do what a line asks for, or have it done when the cell has ended."""
    shell = host.shell()
    if shell is None:
        raise Refused("A notebook or an IPython session can be parked, and this is a program.", verdict=None)
    if line.word.name == "unpark":
        return _unpark(shell, line)
    if list(line.flags) == [_CHECK] and not line.values:
        return _checked(shell)
    if line.flags:
        return automatic.answer(line, shell, this_process(shell)[0])
    if line.rest:
        pid, called = other_notebooks.find(line.rest, notebook_of(shell))
        if pid != os.getpid():
            return other_notebooks.park(pid, called)
    ipython.at_end_of_cell(shell, partial(_park_below_cell, shell))
    return None


def completions(tokens: Sequence[str], _: Callable[[], Sequence[str]]) -> list[str]:
    """Return the names of other notebooks."""
    reports = [] if tokens else other_notebooks.reports()
    return [PurePath(one.notebook).name for one in reports if one.kernel and one.pid > 0]


def _park_below_cell(shell: Any) -> None:
    """Park this process, and show below the cell what became of it."""
    display = ProgressDisplay(shell)
    outcome = park(shell, display)
    first, *rest = outcome.lines if outcome.parked else ["Not parked.", *outcome.lines]
    back = ["All is back before the next cell runs."] * outcome.parked
    display.show_now("\n".join([first, *back, *rest]))


def _checked(shell: Any) -> Document:
    process, _ = this_process(shell)
    if process.without:
        return Document(WITHOUT.format(host.here()))
    found = check()
    against = [*process.against(), *found.reasons]
    time_ = "" if found.seconds is None else f" in {about(found.seconds)}"
    first = f"{rounded(found.leaving)} can go to host memory{time_}; {staying(found.stays)}. Nothing was changed."
    return Document(
        *[first] * bool(found.leaving), *(f"It cannot be parked now: {one}" for one in against), *described(found.stays)
    )


def _unpark(shell: Any, line: ParsedLine) -> Document:
    names = line.flags.get("--without-gpu", "").split()
    process, arrays = this_process(shell)
    if not process.without:
        return Document(f"This {host.here()} is not parked: a cell runs only once all is back on the GPU.")
    if not names:
        return Document(WITHOUT.format(host.here()))
    if unknown := [name for name in names if name not in shell.user_ns]:
        raise Refused(f"There is no variable `{unknown[0]}`.", verdict=None)
    return Document(*(_bind(shell.user_ns, name, arrays) for name in names), WITHOUT.format(host.here()))


def _bind(names: dict[str, Any], name: str, arrays: MovedArrays) -> str:
    """Bind a name to what is in host memory of its value, and say what it is now."""
    made, count, errors = arrays.in_host_memory(names[name])
    failed = f" {len(errors)} could not be read, and stay as they were: {errors[0]}" if errors else ""
    if not count:
        return f"`{name}` is as it was: {failed.strip() or 'no variable or tensor was found in it.'}"
    names[name] = made
    several = f"a dict with {count} NumPy array{'s' * (count > 1)}"
    return f"`{name}` is now {several if isinstance(made, dict) else 'a NumPy array'}.{failed}"
