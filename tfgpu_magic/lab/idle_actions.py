"""The idle ladder in a Jupyter server: it looks at its own kernels, tells their owners, has them parked or ended.

What holds GPU memory for as long as the administrator's file says, without a cell, without use of the GPU by the
driver's samples, and without work of any other kind, is idle; what is not known of it is no idle time.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import psutil

from tfgpu_magic import policy
from tfgpu_magic.errors import MonitorError, PolicyError
from tfgpu_magic.ground.rows import NOT_REPORTED
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.lab import admin_file
from tfgpu_magic.lab.idle_policy import Action, IdleReading, IdleState, Rule, rule_of, step, trouble
from tfgpu_magic.machine.owners.pids import descendants, is_call, start_time
from tfgpu_magic.machine.see import Watch
from tfgpu_magic.parking.other_notebooks import ask_to_park
from tfgpu_magic.policy.settings import REMOVED, removed
from tfgpu_magic.server.actions import IdleHandler, run_within
from tfgpu_magic.server.extensions import Extension, Served
from tfgpu_magic.server.job_thread import JobThread
from tfgpu_magic.tell.fetch import Watcher

if TYPE_CHECKING:
    from collections.abc import Mapping
    from logging import Logger

    from tfgpu_magic.ground.rows import Notebook, Table
    from tfgpu_magic.server.kernels import Kernels

LOOK_EVERY = 30.0
"""Seconds between two looks; for so many each look stands."""
LOOK_TIMEOUT = 20.0
"""Seconds that a look may take; one that takes longer has seen nothing."""
READING_EVERY = 5.0
"""Seconds between two readings of the GPUs that are wanted here."""
PARK_TIMEOUT = 600.0
"""Seconds that a kernel may take to park itself."""
LINGER = 150.0
"""Seconds that a collector started here stays after a look."""
AT_WORK = 0.05
"""CPUs that all processes of a kernel together use, from which on it is at work, whatever its cells do."""
AT_WORK_STATES = ("busy", "starting", "restarting", "autorestarting")
"""Jupyter's words for a kernel that is at work; what it calls otherwise, but idle, is not known."""
PAGE_OPTION = "tfgpuMagicIdle"
"""The option by which a page knows that it is told here, and not by its browser's own memory, too."""


class _UnseenError(Exception):
    """What has to be seen is not."""


class KernelReading(NamedTuple):
    """What a look has found of a kernel.

    Attributes:
        notebook: what the server has of it.
        pid: the process that the server has started.
        parks: the process that can be asked to park itself; 0 where there is none, or it is parked.
        held: bytes of GPU memory; None where any of it is unknown; 0 if it is parked, and most of it has left the GPU.
        used: whether it is at work now; None where that is unknown.
        active: when a cell of it began or ended last; None where that is unknown.
        mark: a text that is another one after any use of a GPU; empty after it was asked something.
        cpu: seconds of the CPU that it has used, with all that it has started.
    """

    notebook: Notebook
    pid: int
    parks: int
    held: int | None
    used: bool | None
    active: float | None
    mark: str
    cpu: float


class IdleKernel(NamedTuple):
    """What is kept of a kernel, with what was found last."""

    found: KernelReading
    kept: IdleState


_Seen: TypeAlias = "tuple[Rule, dict[str, KernelReading]]"
"""The hours, and what was found of each kernel."""


class Lab(Extension):
    """What the lab adds to a Jupyter server."""

    def serve(self, kernels: Kernels, server: Any) -> Served:
        """Begin with the idle steps, if the administrator's file has a table `[idle]`, as in `Extension`."""
        with contextlib.suppress(PolicyError):
            for name in REMOVED:
                if admin_file.table(name) is not None:
                    server.log.error("tfgpu_magic: %s", removed(name, str(policy.FILE)))
            if admin_file.table("idle") is None:
                return super().serve(kernels, server)
        steps = IdleSteps(kernels, server.log, every=LOOK_EVERY)
        with contextlib.suppress(PolicyError):  # a look logs that
            steps.read_rule()
        task = server.io_loop.asyncio_loop.create_task(steps.run())
        server.web_app.settings.setdefault("page_config_data", {})[PAGE_OPTION] = "idle"

        def end() -> None:
            task.cancel()
            steps.close()

        return [(r"/tfgpu-magic/idle", IdleHandler, {"kernels": kernels.notebooks, "idle": steps})], end


class IdleSteps:
    """The ladder of one server's kernels. What is kept of them ends with the server, as they do.

    Args:
        kernels: them.
        log: takes what is done, and why nothing is.
        every: seconds between two looks.
    """

    def __init__(self, kernels: Kernels, log: Logger, *, every: float) -> None:
        self._kernels, self._log, self._every = kernels, log, every
        self._worker, self._watcher = JobThread(), Watcher(Watch(linger=LINGER, every=READING_EVERY))
        self._looking: asyncio.Future[_Seen] | None = None
        self._lines: dict[str, IdleKernel] = {}
        self._rule, self._flaw, self._not_parked = Rule(), "", ""

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(self._every)
            try:
                await self.check()
                self._complain("")
            except (PolicyError, _UnseenError) as error:
                self._complain(str(error))
            except Exception as error:  # of managers of any make; the next look may do
                self._complain(f"{type(error).__name__}: {error}")

    async def check(self) -> None:
        """Look, and do what is due.

        Raises:
            PolicyError: the administrator's file is wrong.
            _UnseenError: what is to be seen is not. Nothing is done then, and no time counts as idle.
        """
        if self._looking is not None and not self._looking.done():
            raise _UnseenError("this machine's processes cannot be read")
        # Of a kernel that the server has not started here itself it does not see the work.
        notebooks = {pid: one for pid, one in (await self._kernels.notebooks()).items() if pid > 0}
        looking = self._looking = self._worker.do(partial(self._read_board, notebooks))
        await asyncio.wait({looking}, timeout=LOOK_TIMEOUT)
        if not looking.done():
            return
        try:
            self._rule, found = looking.result()
        except Exception:
            for key, line in self._lines.items():
                self._lines[key] = line._replace(
                    kept=step(self._rule, IdleReading(self._every, None, None), line.kept)[1]
                )
            raise
        stepped = {key: self._next_action(key, one) for key, one in found.items()}
        self._lines, failed = {key: line for key, (_, line) in stepped.items()}, None
        for key, (action, line) in stepped.items():
            try:
                await self._act(action, key, line)
            except Exception as error:  # of managers of any make; what is due for the others is done
                failed = error
        if failed is not None:
            raise failed

    def read(self) -> dict[str, Any]:
        """Return what is known of the server's notebooks, as its pages get it; times in seconds."""
        return {"notebooks": [_as_json(line, self._rule) for line in self._lines.values()]}

    def note_shown(self) -> None:
        """Note that a page in sight asks: its user is told, and the hours to the next step begin."""
        for key, line in self._lines.items():
            self._lines[key] = line._replace(kept=line.kept.after_shown())

    def put_off(self, pid: int, kernel: object) -> bool:
        """Put all steps of a kernel off; tell whether it is one that its owner was told of, and had not put off."""
        for key, line in self._lines.items():
            if line.found.pid == pid and line.found.notebook.kernel == kernel:
                kept = line.kept.after_put_off()
                self._lines[key] = line._replace(kept=kept)
                return kept != line.kept
        return False

    def close(self) -> None:
        """Close the board."""
        self._worker.close(self._watcher.close)

    def _read_board(self, notebooks: Mapping[int, Notebook]) -> _Seen:
        """Return what is found; raise what `check` does."""
        rule = self.read_rule()
        if not notebooks:  # nobody is to be told, and no GPU is kept awake
            return rule, {}
        table = self._watcher.read(notebooks)
        if why := trouble(table):
            raise _UnseenError(why)
        found = {}
        for pid, notebook in notebooks.items():
            with contextlib.suppress(psutil.Error, OSError):  # it has ended
                found[f"{notebook.kernel} {pid} {start_time(pid)}"] = _read_kernel(pid, notebook, table)
        return rule, found

    def _next_action(self, key: str, found: KernelReading) -> tuple[Action, IdleKernel]:
        """Go on with a kernel: any difference to the look before is use."""
        line, used = self._lines.get(key), found.used
        if line is None:
            used = used or None  # whether it has worked since it began, nobody has seen
        elif found.active != line.found.active:
            used = True
        elif not line.found.mark:
            used = used or None  # what it has done since may be its answer
        elif found.mark != line.found.mark or abs(found.cpu - line.found.cpu) > AT_WORK * self._every:
            used = True
        kept = line.kept if line else IdleState()
        action, kept = step(_rule(self._rule, found), IdleReading(self._every, found.held, used), kept)
        return action, IdleKernel(found, kept)

    async def _act(self, action: Action, key: str, line: IdleKernel) -> None:
        """Do what is due, and log it; nothing to one that was used or put off after the look."""
        if not action:
            return
        found, told = line.found, self._log.warning
        what = f"tfgpu_magic: {found.notebook.title} holds {rounded(found.held)} of GPU memory without use"
        if action == "tell":
            told("%s since %s. %s", what, _hours(line.kept.idle), _warning(line.kept.due(_rule(self._rule, found))))
        elif not (await self._kernels.is_unchanged(found.notebook, found.pid) and self._lines[key] is line):
            if action == "park":  # it is asked at a later look
                later = self._lines[key]
                self._lines[key] = later._replace(kept=later.kept._replace(asked=False))
        elif action == "park":
            refused = await _ask_to_park(found.parks)
            became = f"it was not parked. {refused}" if refused else "it was parked, by the administrator's file"
            later = self._lines[key]  # its owner may have put it off meanwhile
            self._lines[key] = later._replace(found=later.found._replace(mark=""))
            told("%s since %s: %s", what, _hours(line.kept.idle), became)
        else:
            await self._kernels.shut_down(found.notebook.kernel)
            told("%s since %s: it was shut down, by the administrator's file", what, _hours(line.kept.idle))

    def read_rule(self) -> Rule:
        """Return the hours by the file, and log, once, what the file itself keeps from being parked."""
        table = admin_file.table("idle")
        rule = Rule() if table is None else rule_of(table, admin_file.own_groups())
        why = admin_file.why_not_parked() if rule.park < math.inf else ""
        if why not in ("", self._not_parked):
            self._log.warning("tfgpu_magic: %s", why)
        self._not_parked = why
        return rule

    def _complain(self, flaw: str) -> None:
        if flaw not in ("", self._flaw):
            self._log.error("tfgpu_magic: idle notebooks are left alone: %s", flaw)
        self._flaw = flaw


def _read_kernel(pid: int, served: Notebook, table: Table) -> KernelReading:
    """Return what is found of a kernel."""
    notebooks = [(row, row.owner.notebook) for row in table.processes]
    rows = [row for row, notebook in notebooks if notebook and notebook.kernel == served.kernel]
    known = next((row.owner.notebook for row in rows if row.owner.notebook), served)
    held = [row.process.held for row in rows]
    size = None if None in held else sum(filter(None, held))
    pids = descendants(pid)
    parked = sum(row.use.parked.size or 0 for row in rows)
    reporting = (row.owner.kernel for row in rows if row.use != NOT_REPORTED and row.owner.kernel)
    busy = any(row.process.utilisation or row.owner.call for row in rows)
    works = known.state in AT_WORK_STATES or busy or any(map(is_call, pids))
    unknown = known.state != "idle" or any(row.process.unused is None for row in rows)
    return KernelReading(
        notebook=served,
        pid=pid,
        parks=0 if parked else next(reporting, 0),
        held=0 if size is not None and size <= parked else size,
        used=True if works else None if unknown else False,
        active=known.active,
        mark=repr(sorted((row.process.gpu, row.process.pid, row.process.unused or 0.0) for row in rows)),
        cpu=_cpu(pid, *pids),
    )


def _cpu(*pids: int) -> float:
    """Return the seconds of the CPU that processes have used, with those of their children that have ended."""
    seconds = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.Error):  # one that has ended is missing in the sum, and so counts as work
            seconds += sum(psutil.Process(pid).cpu_times()[:4])
    return seconds


def _as_json(line: IdleKernel, rule: Rule) -> dict[str, Any]:
    """Return a notebook's idle state as JSON, for its owner's pages."""
    (notebook, pid, _, held, *_), kept = line
    return {
        "kernel": notebook.kernel,
        "pid": pid,
        "name": notebook.title,
        "path": notebook.path,
        "held": held,
        "idle": kept.idle,
        "told": None if kept.told is None else kept.idle - kept.told,
        "due": kept.due(_rule(rule, line.found)),
        "rests": kept.rests,
        "put_off": kept.put_off,
    }


def _rule(rule: Rule, found: KernelReading) -> Rule:
    return rule if found.parks else rule._replace(park=math.inf)


async def _ask_to_park(pid: int) -> str:
    """Ask a kernel's process to park itself, and return why it does not; empty if it is parked."""
    try:
        outcome = await run_within(PARK_TIMEOUT, partial(ask_to_park, pid))
    except MonitorError as error:
        return str(error)
    return "" if outcome.parked else " ".join(map(str, outcome.lines))


def _warning(due: Mapping[str, float]) -> str:
    says = {"park": "It will be parked", "stop": "Once a page in sight has told its owner, it will be shut down"}
    said = [f"{says[step]} after {_hours(time)} more" for step, time in due.items()]
    return ". ".join(said) or "Nothing will be done about it"


def _hours(time: float) -> str:
    return f"{time / 3600:.1f} h" if time >= 3600 else f"{time / 60:.0f} min"
