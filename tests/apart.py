"""A pytest plug-in: each file of tests runs in a process of its own, so none meets what another one has left.

The process of the run collects the tests, so all that they import is there, and forks itself for each file; it reports
what it is told by them. The files that take longest begin. `tests/seconds.txt` has what each takes, and `--measure`
renews that.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shlex
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import IO, Any, NoReturn

import pytest
from _pytest import runner

FOLDER = Path(__file__).parent
KEPT = FOLDER / "seconds.txt"
UNKNOWN = (20.0, 20.0)
"""What a file is taken for that was never measured: seconds of processors, and on the clock."""

FAST = (3.0, 7.0)
"""What a file takes at most that is among the fast ones."""

CGROUP = "TFGPU_TEST_CGROUP"
"""Names the cgroup in which a file is measured, to those of its processes that are not its descendants."""

_ENDS = 60.0  # seconds in which a file must have ended that was interrupted, or is over its time


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("files", "a process for each file")
    group.addoption(
        "--workers", type=int, default=1, help="how many files run at a time; 0: all here, for breakpoint()"
    )
    group.addoption("--measure", action="store_true", help="renew what the files that run take, in tests/seconds.txt")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the files that take little."""
    known = _seconds()
    for item in items:
        processors, clock = known.get(_name(item.path), UNKNOWN)
        if processors <= FAST[0] and clock <= FAST[1]:
            item.add_marker(pytest.mark.fast)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    options = session.config.option
    broken = session.testsfailed and not options.continue_on_collection_errors
    if broken or options.workers < 1 or options.collectonly or options.usepdb or options.trace:
        return None  # pytest's own
    Run(session).run()
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the line that runs each red test alone."""
    red = [one.nodeid for kind in ("failed", "error") for one in terminalreporter.getreports(kind)]
    if red:
        terminalreporter.section("to run one alone")
    for test in dict.fromkeys(red):
        terminalreporter.line(f"scripts/test {shlex.quote(test)}")


@dataclass(eq=False)
class File:
    """A file of tests that runs.

    Attributes:
        items: its tests.
        pid: its process.
        end: that process's pidfd.
        told: what it tells arrives here.
        log: what its process prints that pytest does not capture.
        folder: the cgroup in which it is measured.
        limit: seconds after which it hangs if nothing was heard of it.
        heard: when something was.
        test: the test that runs.
        left: how many tests have not ended.
    """

    items: list[pytest.Item]
    pid: int
    end: int
    told: Connection
    log: IO[bytes]
    folder: Path | None
    limit: float
    began: float = field(default_factory=time.monotonic)
    heard: float = field(default_factory=time.monotonic)
    test: pytest.Item | None = None
    left: int = 0


class Run:
    """A run of all files."""

    def __init__(self, session: pytest.Session) -> None:
        self._session, self._config = session, session.config
        self._files: list[File] = []
        self._stopping = False

    def run(self) -> None:
        """Run all tests of the session.

        Raises:
            Session.Failed: so many tests have failed that no other begins.
        """
        known, groups = _seconds(), dict[Path, list[pytest.Item]]()
        for item in self._session.items:
            groups.setdefault(item.path, []).append(item)
        waiting = sorted(groups.values(), key=lambda items: known.get(_name(items[0].path), UNKNOWN)[1])
        self._config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # theirs are all in this one
        if "tests.processes" in sys.modules:
            with contextlib.nullcontext() if self._config.option.capture == "no" else _silence():
                sys.modules["tests.processes"].share_template()
        gc.collect()
        gc.freeze()  # a collection would copy all of it
        try:
            while waiting or self._files:
                while waiting and len(self._files) < self._config.option.workers:
                    self._files.append(self._start(waiting.pop()))
                self._listen()
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)
        finally:
            self._interrupt()

    def _start(self, items: list[pytest.Item]) -> File:
        told, tells = Pipe(duplex=False)
        log = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the file
        folder = _cgroup() if self._config.option.measure else None
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            told.close()
            self._child(items, tells, log, folder)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # it does that too: either may be first
        tells.close()
        limit = _ENDS + max(_timeout(item) for item in items)
        return File(items, pid, os.pidfd_open(pid), told, log, folder, limit, left=len(items))

    def _child(self, items: list[pytest.Item], tells: Connection, log: IO[bytes], folder: Path | None) -> NoReturn:
        """Be the process of a file: run its tests, tell of each, and end."""
        status = 1
        try:
            os.setpgid(0, 0)  # an interrupt comes once, from the process of the run
            signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background, shells have it ignored
            if folder is not None:
                (folder / "cgroup.procs").write_text(str(os.getpid()))
                os.environ[CGROUP] = str(folder)
            for other in self._files:
                other.told.close()
                other.log.close()
                os.close(other.end)
            capture: Any = self._config.pluginmanager.getplugin("capturemanager")
            capture.stop_global_capturing()
            if self._config.option.capture != "no":
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            capture.start_global_capturing()
            capture.suspend_global_capture()
            self._config.pluginmanager.register(Telling(self._config, tells))
            try:
                for item, following in zip(items, [*items[1:], None], strict=True):
                    item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
                    if self._session.shouldfail or self._session.shouldstop:
                        break
            finally:
                runner.pytest_sessionfinish(self._session)  # tears down what is left
            status = 0
        except BaseException:  # whatever it is, it is shown
            os.write(2, traceback.format_exc().encode())
        finally:
            sys.stdout.flush()
            os._exit(status)

    def _listen(self) -> None:
        """Wait for what the files tell, and hear it; take leave of those that have ended, and of those that hang."""
        due = min(file.heard + file.limit for file in self._files)
        sources = [source for file in self._files for source in (file.told, file.end)]
        ready = wait(sources, max(0.0, due - time.monotonic()))
        for file in self._files.copy():
            ended = file.end in ready
            if ended or file.told in ready:
                self._hear(file, to_the_end=ended)
            if not ended and time.monotonic() > file.heard + file.limit:
                self._end(file, f"Nothing was heard of it for {file.limit:g} s, and it was killed.")
            elif ended:
                self._end(file)

    def _hear(self, file: File, *, to_the_end: bool) -> None:
        with contextlib.suppress(EOFError, ConnectionError):
            while file.told.poll():
                hook, told = file.told.recv()
                file.heard = time.monotonic()
                if hook == "pytest_runtest_logstart":
                    file.test = next(item for item in file.items if item.nodeid == told["nodeid"])
                    continue
                if hook == "pytest_runtest_logfinish":
                    file.test, file.left = None, file.left - 1
                elif hook == "pytest_runtest_logreport":
                    told = {"report": self._config.hook.pytest_report_from_serializable(config=self._config, **told)}
                if not self._stopping:
                    say = getattr(self._config.hook, hook)
                    (say.call_historic(kwargs=told) if say.is_historic() else say(**told))
                if not to_the_end:
                    break

    def _end(self, file: File, why: str = "") -> None:
        """Take leave of a file; what it has left behind in its process group is killed."""
        self._files.remove(file)
        with contextlib.suppress(OSError):
            os.killpg(file.pid, signal.SIGKILL)
        _, status = os.waitpid(file.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if (why or code or file.left) and not self._stopping and not self._session.shouldfail:
            self._report_end(file, why or f"Its process ended: {code if code >= 0 else signal.Signals(-code).name}.")
        if file.folder is not None:
            _keep(file.items[0].path, _used(file.folder), time.monotonic() - file.began)
        file.told.close()
        file.log.close()
        os.close(file.end)

    def _report_end(self, file: File, why: str) -> None:
        """Report a file that did not come to a good end, as a failure of the test that ran, or else of its last one."""
        item = file.test or file.items[-1]
        file.log.seek(0)
        printed = file.log.read().decode(errors="replace")
        rest = f" {file.left} tests of the file, with this one, have not ended." if file.left else ""
        report = pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords={},
            outcome="failed",
            longrepr=f"{why}{rest}",
            when="call",
            sections=[("Printed by the process of the file", printed)],
        )
        self._config.hook.pytest_runtest_logreport(report=report)

    def _interrupt(self) -> None:
        """Interrupt the files that run, and wait for their end: they remove what they have made."""
        self._stopping = True
        for file in self._files:
            with contextlib.suppress(OSError):
                os.killpg(file.pid, signal.SIGINT)
        end = time.monotonic() + _ENDS
        while self._files and time.monotonic() < end:
            for file in self._files:
                file.limit = end - file.heard
            self._listen()
        for file in self._files.copy():
            self._end(file)


class Telling:
    """The part of the plug-in that tells, in the process of a file, how its tests go."""

    def __init__(self, config: pytest.Config, to: Connection) -> None:
        self._config, self._to = config, to

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._to.send(("pytest_runtest_logstart", {"nodeid": nodeid}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._to.send(("pytest_runtest_logreport", {"data": data}))

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._to.send(("pytest_runtest_logfinish", {"nodeid": nodeid, "location": location}))

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        one = warning_message
        plain = warnings.WarningMessage(str(one.message), one.category, one.filename, one.lineno)
        facts = {"warning_message": plain, "when": when, "nodeid": nodeid, "location": location}
        self._to.send(("pytest_warning_recorded", facts))


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Have what is started in the block print nothing."""
    kept = {number: os.dup(number) for number in (1, 2)}
    with Path(os.devnull).open("wb") as nothing:
        for number in kept:
            os.dup2(nothing.fileno(), number)
    try:
        yield
    finally:
        for number, one in kept.items():
            os.dup2(one, number)
            os.close(one)


def _name(path: Path) -> str:
    return path.relative_to(FOLDER).as_posix() if path.is_relative_to(FOLDER) else str(path)


def _seconds() -> dict[str, tuple[float, float]]:
    """Return the seconds of processors and on the clock that each file takes."""
    lines = (line.split() for line in KEPT.read_text().splitlines())
    return {file: (float(processors), float(clock)) for processors, clock, file in lines}


def _keep(path: Path, processors: float, clock: float) -> None:
    """Keep what a file took, and nothing of files that are no longer there; the longest come first."""
    found = {**_seconds(), _name(path): (processors, clock)}
    rows = sorted(found.items(), key=lambda row: -row[1][1])
    KEPT.write_text("".join(f"{one:.1f} {two:.1f} {file}\n" for file, (one, two) in rows if (FOLDER / file).exists()))


def _timeout(item: pytest.Item) -> float:
    """Return the seconds that a test may take, as pytest-timeout has it."""
    marker, config = item.get_closest_marker("timeout"), item.config
    if marker is not None:
        return float(marker.args[0])
    return float(config.getoption("timeout", None) or os.environ.get("PYTEST_TIMEOUT") or config.getini("timeout"))


def _cgroups() -> Iterator[tuple[Path, str, float]]:
    """Give where cgroups may be made, the file that has their seconds, and its unit."""
    yield Path("/sys/fs/cgroup/cpuacct"), "cpuacct.usage", 1e9
    yield Path("/sys/fs/cgroup"), "cpu.stat", 1e6


def _cgroup() -> Path:
    """Make a cgroup for a file; all its processes are in it, those that live on too.

    Raises:
        OSError: this user may not.
    """
    root = next(root for root, _, _ in _cgroups() if (root / "cgroup.procs").exists())
    return Path(tempfile.mkdtemp(prefix="tfgpu-magic-tests-", dir=root))


def _used(folder: Path) -> float:
    """Return the seconds of processors that a cgroup has used, and remove it if nothing lives in it."""
    file, unit = next((file, unit) for root, file, unit in _cgroups() if root == folder.parent)
    used = float((folder / file).read_text().split("\n")[0].split()[-1]) / unit
    with contextlib.suppress(OSError):
        folder.rmdir()
    return used
