"""The idle ladder in a Jupyter server: it looks at the server's own kernels, tells their owners, shuts them down.

What holds GPU memory for as long as the administrator's file says, without a cell, without use of the GPU by the
driver's samples, and without work of any other kind, is idle; what is not known of it is no idle time.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import psutil

from tfgpu_magic import policy
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.lab import file
from tfgpu_magic.lab.ladder import Action, IdleLook, IdleState, Rule, refused_steps, rule_of, step, trouble
from tfgpu_magic.monitor.live import Live
from tfgpu_magic.monitor.owners.pids import began, descendants, is_call
from tfgpu_magic.monitor.table.fetch import Watcher
from tfgpu_magic.policy.settings import REMOVED, removed
from tfgpu_magic.server.actions import IdleHandler
from tfgpu_magic.server.job_thread import JobThread
from tfgpu_magic.units import rounded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from logging import Logger

    from tfgpu_magic.model.rows import Notebook, Table
    from tfgpu_magic.server.kernels import Kernels

LOOK_EVERY = 30.0
"""Seconds between two looks; for so many each look stands."""
LOOK_TIMEOUT = 20.0
"""Seconds that a look may take; one that takes longer has seen nothing."""
READING_EVERY = 5.0
"""Seconds between two readings of the GPUs that are wanted here."""
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


class KernelLook(NamedTuple):
    """What a look has found of a kernel.

    Attributes:
        notebook: what the server has of it.
        pid: the process that the server has started.
        held: bytes of GPU memory; None where any of it is unknown.
        used: whether it is at work now; None where that is unknown.
        mark: a text that is another one after any use.
        cpu: seconds of the CPU that it has used, with all that it has started.
    """

    notebook: Notebook
    pid: int
    held: int | None
    used: bool | None
    mark: str
    cpu: float


class IdleKernel(NamedTuple):
    """What is kept of a kernel, with what was found last."""

    found: KernelLook
    kept: IdleState


_Seen: TypeAlias = "tuple[Rule, dict[str, KernelLook]]"
"""The hours, and what was found of each kernel."""


def start(kernels: Kernels, server: Any) -> tuple[list[tuple[object, ...]], Callable[[], None]]:
    """Begin, where the administrator's file has a table `[idle]`; return a handler, and what ends it.

    Args:
        kernels: the server's kernels.
        server: the application.
    """
    with contextlib.suppress(PolicyError):
        for name in REMOVED:
            if file.table(name) is not None:
                server.log.error("tfgpu_magic: %s", removed(name, str(policy.FILE)))
        if file.table("idle") is None:
            return [], lambda: None
    steps = IdleSteps(kernels, server.log, every=LOOK_EVERY)
    with contextlib.suppress(PolicyError):  # a look logs that
        steps.tell_refused(file.table("idle"))
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
        self._worker, self._watcher = JobThread(), Watcher(Live(linger=LINGER, every=READING_EVERY))
        self._looking: asyncio.Future[_Seen] | None = None
        self._lines: dict[str, IdleKernel] = {}
        self._rule, self._flaw, self._refused = Rule(), "", ""

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(self._every)
            try:
                await self.look()
                self._complain("")
            except (PolicyError, _UnseenError) as error:
                self._complain(str(error))
            except Exception as error:  # of managers of any make; the next look may do
                self._complain(f"{type(error).__name__}: {error}")

    async def look(self) -> None:
        """Look, and do what is due.

        Raises:
            PolicyError: the administrator's file is wrong.
            _UnseenError: what is to be seen is not. Nothing is done then, and no time counts as idle.
        """
        if self._looking is not None and not self._looking.done():
            raise _UnseenError("this machine's processes cannot be read")
        # Of a kernel that the server has not started here itself it does not see the work.
        notebooks = {pid: one for pid, one in (await self._kernels.notebooks()).items() if pid > 0}
        looking = self._looking = self._worker.do(partial(self._see, notebooks))
        await asyncio.wait({looking}, timeout=LOOK_TIMEOUT)
        if not looking.done():
            return
        try:
            self._rule, found = looking.result()
        except Exception:
            for key, line in self._lines.items():
                self._lines[key] = line._replace(kept=step(self._rule, IdleLook(self._every, None, None), line.kept)[1])
            raise
        stepped = {key: self._stepped(key, one) for key, one in found.items()}
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
        return {"notebooks": [_told(line, self._rule) for line in self._lines.values()]}

    def shown(self) -> None:
        """Note that a page in sight asks: its user is told, and the hours to the next step begin."""
        for key, line in self._lines.items():
            self._lines[key] = line._replace(kept=line.kept.shown())

    def not_today(self, pid: int, kernel: object) -> bool:
        """Put all steps of a kernel off; tell whether it is one that its owner was told of, and had not put off."""
        for key, line in self._lines.items():
            if line.found.pid == pid and line.found.notebook.kernel == kernel:
                kept = line.kept.not_today()
                self._lines[key] = line._replace(kept=kept)
                return kept != line.kept
        return False

    def close(self) -> None:
        """Close the board."""
        self._worker.close(self._watcher.close)

    def _see(self, notebooks: Mapping[int, Notebook]) -> _Seen:
        """Return what is found; raise what `look` does."""
        idle = file.table("idle")
        self.tell_refused(idle)
        rule = Rule() if idle is None else rule_of(idle, file.own_groups())
        if not notebooks:  # nobody is to be told, and no GPU is kept awake
            return rule, {}
        table = self._watcher.see(notebooks)
        if why := trouble(table):
            raise _UnseenError(why)
        found = {}
        for pid, notebook in notebooks.items():
            with contextlib.suppress(psutil.Error, OSError):  # it has ended
                found[f"{notebook.kernel} {pid} {began(pid)}"] = _found(pid, notebook, table)
        return rule, found

    def _stepped(self, key: str, found: KernelLook) -> tuple[Action, IdleKernel]:
        """Go on with a kernel: any difference to the look before is use."""
        line, used = self._lines.get(key), found.used
        if line is None:
            used = used or None  # whether it has worked since it began, nobody has seen
        elif found.mark != line.found.mark or abs(found.cpu - line.found.cpu) > AT_WORK * self._every:
            used = True
        kept = line.kept if line else IdleState()
        action, kept = step(self._rule, IdleLook(self._every, found.held, used), kept)
        return action, IdleKernel(found, kept)

    async def _act(self, action: Action, key: str, line: IdleKernel) -> None:
        """Do what is due, and log it; nothing to one that was used or put off after the look."""
        if not action:
            return
        found, told = line.found, self._log.warning
        what = f"tfgpu_magic: {found.notebook.title} holds {rounded(found.held)} of GPU memory without use"
        if action == "tell":
            told("%s since %s. %s", what, _hours(line.kept.idle), _announced(line.kept.due(self._rule)))
        elif await self._kernels.unchanged(found.notebook, found.pid) and self._lines[key] is line:
            await self._kernels.shut_down(found.notebook.kernel)
            told("%s since %s: it was shut down, by the administrator's file", what, _hours(line.kept.idle))

    def tell_refused(self, table: Any) -> None:
        """Log, once, which steps in the file's table are not taken."""
        refused = refused_steps(table, str(policy.FILE))
        if refused not in ("", self._refused):
            self._log.error("tfgpu_magic: %s", refused)
        self._refused = refused

    def _complain(self, flaw: str) -> None:
        if flaw not in ("", self._flaw):
            self._log.error("tfgpu_magic: idle notebooks are left alone: %s", flaw)
        self._flaw = flaw


def _found(pid: int, served: Notebook, table: Table) -> KernelLook:
    """Return what is found of a kernel."""
    rows = [row for row in table.processes if row.notebook and row.notebook.kernel == served.kernel]
    known = next((row.notebook for row in rows if row.notebook), served)
    held = [row.held for row in rows]
    pids = descendants(pid)
    works = known.state in AT_WORK_STATES or any(row.utilisation or row.call for row in rows) or any(map(is_call, pids))
    unknown = known.state != "idle" or any(row.unused is None for row in rows)
    return KernelLook(
        notebook=served,
        pid=pid,
        held=None if None in held else sum(filter(None, held)),
        used=True if works else None if unknown else False,
        mark=repr((known.active, sorted((row.gpu, row.pid or 0, row.unused or 0.0) for row in rows))),
        cpu=_cpu(pid, *pids),
    )


def _cpu(*pids: int) -> float:
    """Return the seconds of the CPU that processes have used, with those of their children that have ended."""
    seconds = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.Error):  # one that has ended is missing in the sum, and so counts as work
            seconds += sum(psutil.Process(pid).cpu_times()[:4])
    return seconds


def _told(line: IdleKernel, rule: Rule) -> dict[str, Any]:
    """Return what is known of a notebook, for its owner's pages."""
    (notebook, pid, held, *_), kept = line
    return {
        "kernel": notebook.kernel,
        "pid": pid,
        "name": notebook.title,
        "path": notebook.path,
        "held": held,
        "idle": kept.idle,
        "told": None if kept.told is None else kept.idle - kept.told,
        "due": kept.due(rule),
        "rests": kept.rests,
        "put_off": kept.put_off,
    }


def _announced(due: Mapping[str, float]) -> str:
    """Return what will be done, as a sentence."""
    if "stop" not in due:
        return "Nothing will be done about it"
    return f"Once a page in sight has told its owner, it will be shut down after {_hours(due['stop'])} more"


def _hours(time: float) -> str:
    return f"{time / 3600:.1f} h" if time >= 3600 else f"{time / 60:.0f} min"
