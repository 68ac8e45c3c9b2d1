"""`%tf_gpu park` and `unpark`: this notebook's GPU state goes to host memory, and is back before its next cell runs.

`unpark --without-gpu` alone finds this process still parked: the gate has let its cell pass.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any

from tfgpu_magic.engine.room import ProgressDisplay
from tfgpu_magic.ground import process_kind
from tfgpu_magic.ground.answer import Document
from tfgpu_magic.ground.message import Message, join_lines, msg, paragraph
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.machine.owners.pids import notebook_of_shell
from tfgpu_magic.parking import automatic, other_notebooks
from tfgpu_magic.parking.arrays import MovedArrays, about, check, stay_messages
from tfgpu_magic.parking.frameworks import refusal
from tfgpu_magic.parking.kernel import ipython
from tfgpu_magic.parking.kernel.process import goes_without
from tfgpu_magic.parking.outcome import NOT_PARKED
from tfgpu_magic.parking.this_notebook import how_much_stays, park, this_process
from tfgpu_magic.policy.word import ParsedLine

_CHECK = "--check"
_PROGRAM = msg("A notebook or an IPython session can be parked, and this is a program.")


def run(line: ParsedLine) -> Document | None:
    """Do what a line asks for, or have it done when the cell has ended."""
    shell = process_kind.shell()
    if shell is None:
        raise refusal(_PROGRAM)
    if line.word.name == "unpark":
        return _unpark(shell, line)
    if list(line.flags) == [_CHECK] and not line.values:
        return _check(shell)
    if line.flags:
        return automatic.answer(line, shell, this_process(shell)[0])
    if line.rest:
        pid, name = other_notebooks.find(line.rest, notebook_of_shell(shell))
        if pid != os.getpid():
            return other_notebooks.park(pid, name)
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
    first, *rest = outcome.lines
    back = [first, msg("All is back before the next cell runs."), *rest]
    display.show_now(join_lines(back if outcome.parked else [NOT_PARKED, *outcome.lines]))


def _check(shell: Any) -> Document:
    process, _ = this_process(shell)
    if process.without:
        return Document(goes_without())
    found = check()
    leaves = msg(
        "{size} can go to host memory{time}; {stays}. Nothing was changed.",
        size=rounded(found.leaving),
        time="" if found.seconds is None else f" in {about(found.seconds)}",
        stays=how_much_stays(found.stays),
    )
    against = [msg("It cannot be parked now: {why}", why=why) for why in (*process.against(), *found.reasons)]
    return Document(*[leaves] * bool(found.leaving), *against, *stay_messages(found.stays))


def _unpark(shell: Any, line: ParsedLine) -> Document:
    names = line.flags.get("--without-gpu", "").split()
    process, arrays = this_process(shell)
    if not process.without:
        back = "This {here} is not parked: a cell runs only once all is back on the GPU."
        return Document(msg(back, here=process_kind.noun()))
    if unknown := [name for name in names if name not in shell.user_ns]:
        raise refusal(msg("There is no variable `{name}`.", name=unknown[0]))
    return Document(*(_bind(shell.user_ns, name, arrays) for name in names), goes_without())


def _bind(names: dict[str, Any], name: str, arrays: MovedArrays) -> Message:
    """Bind a name to what is in host memory of its value, and return what it is now."""
    made, count, errors = arrays.in_host_memory(names[name])
    text = "{count} could not be read, and stay as they were: {error}"
    failed = msg(text, count=len(errors), error=errors[0]) if errors else None
    if not count:
        why = failed or msg("no variable or tensor was found in it.")
        return msg("`{name}` is as it was: {why}", name=name, why=why)
    names[name] = made
    several = f"a dict with {count} NumPy array{'s' * (count > 1)}"
    now = several if isinstance(made, dict) else "a NumPy array"
    return paragraph([msg("`{name}` is now {now}.", name=name, now=now), failed])
