"""Explains an error that says that a GPU had no memory left: asks pools, driver and planner once, and keeps the answer.

Nothing here waits for a driver: a child process reads the GPUs, for a limited time, and only a framework that has
started is asked for its pools. After it has failed to start for lack of memory, TensorFlow may hang at any question.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from IPython.display import display

from tfgpu_magic.frameworks import cuda, registry, self_report
from tfgpu_magic.frameworks.runtime import RUNTIME
from tfgpu_magic.ground.bounded import run_within
from tfgpu_magic.ground.process_kind import noun, process_kind, shell
from tfgpu_magic.ground.report import Report
from tfgpu_magic.ground.rows import Owner
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.ground.units import MIB
from tfgpu_magic.insight.objects import roots
from tfgpu_magic.insight.objects.search import bytes_held_alone, search
from tfgpu_magic.insight.why import errors
from tfgpu_magic.insight.why.answer import Why
from tfgpu_magic.insight.why.explanation import Explanation, Remedy, find_cause, is_memory
from tfgpu_magic.insight.why.remedies import Trial, free, is_enough, remedies
from tfgpu_magic.insight.why.sendable import sendable
from tfgpu_magic.machine.see import look
from tfgpu_magic.policy.memory import context_bytes
from tfgpu_magic.policy.process_state import Stage
from tfgpu_magic.tell import fetch, tabulate

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tfgpu_magic.frameworks.pool import Pool
    from tfgpu_magic.frameworks.shortage import Shortage
    from tfgpu_magic.ground.rows import Table
    from tfgpu_magic.insight.objects.names import NamedMemory

LOOK_TIMEOUT = 3.0
"""Seconds to wait for the driver, and as long again for this machine's processes."""

TRIAL_TIMEOUT = 5.0
"""Seconds to wait for the planner, which may look up who holds memory, and how CUDA numbers GPUs."""

MOST_HOLDERS = 5
"""How much of what holds memory is named, the largest first."""

_CONTAINERS = (list, dict, set, deque)
"""The types of which one is empty when it is made anew: a name that the cell reads is deleted for no other."""


class _Last:
    """What was explained last, and the id of its error, which itself is not kept."""

    explanation: Explanation | None = None
    error = 0


LAST = _Last()


def explain(error: BaseException, number: int | None = None) -> Explanation | None:
    """Explain an error of this process, or of an isolated call that it has made, or None if it is not about GPU memory.

    Args:
        error: the error.
        number: the number of the cell that it has ended, if any.
    """
    shortage = errors.shortage(error)
    if shortage is None:
        return None
    call = errors.is_of_call(error)
    framework = next(one for one in registry.FRAMEWORKS if one.name == shortage.framework)
    started = framework.stage() is Stage.READY
    if not (started or call or shortage.kind == "driver"):
        return None  # it uses no GPU here
    own = started and not call
    pools = _pools(framework) if own else ()
    snapshot, table = _read_gpus()
    shown = () if call else cuda.visible_gpus()
    case = _case(shortage, number, pools, table, call=call, started=started or call, shown=shown)
    if case is not None and own:
        reads, sent = _names_read(number)
        case = replace(case, fixed=errors.is_for_variable(error), sendable=sent)
        with contextlib.suppress(Exception):  # the user's own error is what must be seen
            found = search()
            biggest, fixed = _biggest(found.rows, case.pool), case.fixed or shortage.shape in found.shapes
            case = replace(case, biggest=biggest, fixed=fixed, gave_up=found.gave_up)
        case = replace(case, deletion=_deletion(case, None if sent is None else reads))
    return None if case is None else _keep(case, snapshot, error)


def explain_call(
    error: BaseException, pools: Sequence[Pool], then: Snapshot, *, pid: int | None, number: int | None
) -> Why | None:
    """Explain an error of an isolated cell, whose process is gone, or None if it is not about GPU memory.

    Args:
        error: the error.
        pools: the pools of the frameworks in its process when it had failed.
        then: the GPUs when it had failed.
        pid: its process.
        number: the number of the cell.
    """
    shortage = errors.shortage(error)
    if shortage is None:
        return None
    owners = fetch.owners(then)
    if pid is not None and pid in owners:  # it held the memory, and has ended since
        owners = {**owners, pid: Owner(pid=pid, who="this", text=f"this {noun()}'s isolated cell")}
    table = tabulate.make_table(then, tabulate.ProcessFacts(owners=owners, this=f"this {noun()}"))
    failed = [pool for pool in pools if pool.framework == shortage.framework]
    case = _case(shortage, number, failed, table, call=True, pid=pid)
    if case is None:
        return None
    now = look(LOOK_TIMEOUT)
    now = now._replace(processes=tuple(process for process in now.processes if process.pid != pid))
    return Why(_keep(case, now, error))


def _pools(framework: registry.Framework) -> Sequence[Pool]:
    with contextlib.suppress(Exception):  # their errors have no common root
        return [framework.with_settings(pool) for pool in framework.pools()]
    return ()


def _biggest(holdings: Sequence[NamedMemory], pool: Pool | None) -> tuple[NamedMemory, ...]:
    """Return what of the user's holds most memory beside what had none: of a framework's GPUs only the one."""
    found = tuple(one for one in holdings if one.size >= MIB)  # less is shown as nothing
    if pool is not None:
        found = tuple(one for one in found if one.framework != pool.framework or one.device == pool.name)
    return found[:MOST_HOLDERS]


def _names_read(number: int | None) -> tuple[frozenset[str], bool | None]:
    """Return the names that a cell reads, and whether they can be sent, or None if the names are not known."""
    history = getattr(getattr(shell(), "history_manager", None), "input_hist_parsed", [])
    if number is None or not 0 < number < len(history):
        return frozenset(), None
    return sendable(history[number], roots.notebook_names())


def _deletion(case: Explanation, reads: Collection[str] | None) -> tuple[Remedy, ...]:
    """Return the deletion of one of the largest two names, if it would have been enough, and the cell can do without.

    `reads` are the names that the cell reads; None if it may read any.
    """
    pool, values = case.pool, roots.notebook_names()
    if pool is None or case.host == "program":
        return ()
    named = dict.fromkeys(one.name.parts[0] for one in case.biggest if one.name.parts and not one.name.within)
    for name in [name for name in named if name in values][:2]:
        if not (read := reads is None or name in reads) or type(values[name]) in _CONTAINERS:
            freed = bytes_held_alone(name, (pool.framework, pool.name))
            if is_enough(case, freed):
                return (free(f"free {name}", freed, anew=name * read),)
    return ()


def _read_gpus() -> tuple[Snapshot, Table]:
    """Look at the GPUs once, and return what was seen, as it is and as rows."""
    seen = [Snapshot(time=time.time())]

    def report(snapshot: Snapshot) -> Report:
        seen.append(snapshot)
        with contextlib.suppress(Exception):  # whatever state the failure has left behind, the GPUs are shown
            return self_report.report(snapshot)
        return Report(pid=os.getpid(), summary="")

    table = fetch.table(report, timeout=LOOK_TIMEOUT)
    return seen[-1], table


def _case(
    shortage: Shortage,
    number: int | None,
    pools: Sequence[Pool],
    table: Table,
    *,
    call: bool,
    started: bool = True,
    shown: Collection[str] = (),
    pid: int | None = None,
) -> Explanation | None:
    """Return what is known of a lack of memory, or None if a library failed for another reason.

    `shown` are the UUIDs of the GPUs that its process sees, if they are known; `pid` is its process, None for this one.
    """
    pools = [one._replace(reached=shortage.in_use) if shortage.device in (one.name, "") else one for one in pools]
    pool = _pool(shortage, pools)
    if pool is None or shortage.kind == "library":  # what counts is the room beside the pools
        gpu = _gpu(table, {one.gpu for one in pools} or shown)
        pool = next((one for one in pools if gpu is not None and one.gpu == gpu.uuid), None)
    else:
        gpu = _gpu(table, {pool.gpu})
    if not is_memory(shortage, gpu):
        return None
    beside = [one for one in pools if pool is not None and one.gpu == pool.gpu]
    pid = os.getpid() if pid is None else pid
    rows = tuple(row for row in table.processes if gpu and row.process.gpu == gpu.label and row.process.held != 0)
    held = next((row.process.held for row in rows if row.process.pid == pid), None)
    parts = tuple(one.limit or 0 for one in beside)
    taken = held if all(one.peak for one in beside) else None  # each is taken when it is first used
    shrunk = pool is not None and pool.capped and not pool.grows and taken is not None and taken < sum(parts)
    if shrunk and pool is not None and len(parts) == 1 and gpu is not None and gpu.total and held is not None:
        pool = pool._replace(taken=max(held - context_bytes(gpu.total), pool.in_use))
    return Explanation(
        time=time.time(),
        cell=number,
        shortage=shortage,
        cause=find_cause(shortage, pool, gpu, started=started, shrunk=shrunk),
        pool=pool,
        parts=parts,
        part=next((at for at, one in enumerate(beside) if pool is not None and one.name == pool.name), 0),
        gpu=gpu,
        seen=table.time,
        processes=rows,
        workers=tuple(row for row in rows if row.owner.who == "this" and row.process.pid != pid and not row.owner.call),
        host=process_kind(),
        call=call,
        simulated=table.simulated,
    )


def _pool(shortage: Shortage, pools: Sequence[Pool]) -> Pool | None:
    """Return the pool that an error is about, or if the error does not tell, the one with the least room."""
    named = [pool for pool in pools if shortage.device in (pool.name, "")]
    return min(named or pools, key=lambda one: math.inf if one.limit is None else one.limit - one.level, default=None)


def _gpu(table: Table, uuids: Collection[str]) -> Gpu | None:
    """Return the GPU with least free memory of these, or if none is known, the machine's only GPU."""
    gpus = [row.gpu for row in table.gpus]
    seen = [gpu for gpu in gpus if gpu.uuid in uuids or (not uuids and len(gpus) == 1)]
    known = [gpu for gpu in seen if gpu.free is not None]
    return min(known, key=lambda gpu: gpu.free or 0, default=next(iter(seen), None))


def _keep(case: Explanation, snapshot: Snapshot, error: BaseException) -> Explanation:
    """Add the remedies, and keep the explanation. If checking them takes longer than `TRIAL_TIMEOUT`, add none."""
    trial = Trial(snapshot, case.shortage.framework, None if case.gpu is None else case.gpu.uuid)
    with contextlib.suppress(Exception):  # what is known is shown without them
        case = replace(case, limited_by=_limited_by(case, snapshot))
        case = replace(case, remedies=run_within(TRIAL_TIMEOUT, partial(remedies, case, trial)) or ())
    LAST.explanation, LAST.error = case, id(error)
    return case


def _limited_by(case: Explanation, snapshot: Snapshot) -> str:
    """Return who has set the limit, if it was not the user."""
    ceiling, plan = RUNTIME.ceiling, RUNTIME.plan
    gpu = next((gpu for gpu in snapshot.gpus if case.gpu is not None and gpu.uuid == case.gpu.uuid), None)
    if ceiling is not None and gpu is not None and abs(ceiling.bytes(gpu) - sum(case.parts)) < MIB:
        return f" by {ceiling.named}"
    if plan is not None and plan.configured and not (case.call or RUNTIME.changed_settings()):
        return f" by this machine's policy `{plan.asked}`"
    return ""


def show(error: BaseException, number: int | None) -> None:
    """Show below a cell why the error that has ended it says that a GPU has no memory, or nothing for other errors.

    Args:
        error: the error.
        number: the cell's number.
    """
    last = LAST.explanation
    if number is not None and last is not None and (last.cell, LAST.error) == (number, id(error)):
        return  # an isolated cell has shown it, which knows more of its process
    found = explain(error, number)
    if found is not None:
        display(Why(found))  # type: ignore[no-untyped-call]  # IPython's


def why(error: BaseException | None = None) -> Why | None:
    """Return why a GPU had no memory left, and what would help, which is checked and not done.

    Args:
        error: what was raised, by TensorFlow, PyTorch or JAX; None for the last error that was explained.

    Returns:
        The explanation, which a notebook shows as HTML or as text; its `explanation` has the figures, in bytes. None
        if the error is about something else, or none was explained before.

    Examples:
        ``except Exception as error: print(tfgpu_magic.why(error) or error)``
    """
    found = LAST.explanation if error is None else explain(error)
    return None if found is None else Why(found)


def explain_last() -> Why:
    """Return the last explanation. If the last error was not explained when it came, explain it first."""
    error = getattr(sys, "last_value", None)
    if error is not None and LAST.error != id(error):
        explain(error)
    return Why(LAST.explanation)
