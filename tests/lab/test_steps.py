"""The idle ladder's steps in a server: what counts as use, what is done, and what never is."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.rows import changed, gpu_row, process_row
from tests.sizes import GIB
from tfgpu_magic import policy
from tfgpu_magic.doctor.checks.idle import idle
from tfgpu_magic.doctor.machine import ThisMachine
from tfgpu_magic.errors import MonitorError, PolicyError
from tfgpu_magic.ground.message import msg
from tfgpu_magic.ground.report import GpuUse, Parked
from tfgpu_magic.ground.rows import Notebook, ProcessRow, Table
from tfgpu_magic.lab import idle_actions
from tfgpu_magic.lab.idle_actions import IdleSteps
from tfgpu_magic.parking.outcome import ParkOutcome
from tfgpu_magic.policy.settings import removed
from tfgpu_magic.server.kernels import Kernels

PID = os.getpid()
NOTEBOOK = Notebook(path="train.ipynb", kernel="k", state="idle", active=900.0)
ROW = process_row(pid=PID, kind="C", owner="train.ipynb", held=5 * GIB, notebook=NOTEBOOK, kernel=PID)
IDLE = changed(ROW, unused=1000.0, utilisation=0)
OTHER_PID, OTHER = os.getppid(), replace(NOTEBOOK, path="other.ipynb", kernel="other")
OTHER_IDLE = changed(IDLE, pid=OTHER_PID, owner="other.ipynb", notebook=OTHER, kernel=OTHER_PID)
FILE = '[idle]\nnotify = "2m"\nstop = "6m"\n'
PARKS = f'{FILE}park = "4m"\n'
REPORTS = GpuUse(gpu="0")
ASKED = changed(IDLE, use=REPORTS)
"""What can be asked to park itself."""


class FakeKernels(Kernels):
    """The kernels of a server without one."""

    def __init__(self) -> None:
        self.there = {PID: NOTEBOOK}
        self.ended: list[str] = []
        self.meanwhile: Callable[[str], object] = lambda _: None
        """What happens while one is shut down."""
        self._kernels = SimpleNamespace(shutdown_kernel=self.end)

    async def notebooks(self) -> dict[int, Notebook]:
        return dict(self.there)

    def end(self, kernel: str) -> None:
        self.meanwhile(kernel)
        self.ended.append(kernel)


class Rig:
    """Steps of a server, and what is to be seen of its one kernel."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kernels, self.cpu, self.asked, self.parks = FakeKernels(), 0.0, list[int](), False
        self.then: dict[int, Notebook] | None = None
        """The kernels that there are once the GPUs were read."""
        monkeypatch.setattr(idle_actions, "ask_to_park", self.park)
        self.table = Table(time=2000.0, gpus=(gpu_row(name="A100"),), processes=(IDLE,))
        self.steps = IdleSteps(self.kernels, logging.getLogger("tests"), every=30.0)
        monkeypatch.setattr(self.steps._watcher, "read", self.see)
        monkeypatch.setattr(idle_actions, "_cpu", lambda *_: self.cpu)
        monkeypatch.setattr(
            idle_actions, "descendants", lambda _: []
        )  # of the test's parent: the isolated cells of other tests

    def see(self, *_: object) -> Table:
        self.kernels.there = self.then or self.kernels.there
        return self.table

    def park(self, pid: int) -> ParkOutcome:
        self.asked.append(pid)
        self.cpu += 30.0  # to find what could leave takes a while
        self.table = replace(self.table, processes=tuple(changed(one, unused=1500.0) for one in self.table.processes))
        self.meanwhile()
        return ParkOutcome(self.parks, [msg("Stop them first.")])

    def meanwhile(self) -> None:
        """What happens while a kernel is asked to park itself."""

    def looks(self, minutes: float, *rows: ProcessRow) -> None:
        """Look for so long, at these rows if any are given."""
        self.table = replace(self.table, processes=rows or self.table.processes)

        async def look() -> None:
            for _ in range(int(minutes * 2)):
                await self.steps.check()
                self.steps.note_shown()  # to a page in sight

        asyncio.run(look())

    @property
    def told(self) -> Any:
        (one,) = self.steps.read()["notebooks"]
        return one


def steps_of(kernels: Kernels, log: logging.Logger) -> str:
    """Begin the steps of a server as at its start, and end them; return what a page of it learns."""
    settings: dict[str, Any] = {}

    async def run() -> None:
        loop = SimpleNamespace(asyncio_loop=asyncio.get_running_loop())
        _, end = idle_actions.Lab().serve(
            kernels, SimpleNamespace(log=log, io_loop=loop, web_app=SimpleNamespace(settings=settings))
        )
        end()

    asyncio.run(run())
    return str(settings.get("page_config_data", {}).get(idle_actions.PAGE_OPTION, ""))


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Rig]:
    monkeypatch.setattr(policy, "FILE", tmp_path / "tfgpu_magic.toml")
    policy.FILE.write_text(FILE)
    rig = Rig(monkeypatch)
    yield rig
    rig.steps.close()


def test_what_is_idle_is_told_and_then_shut_down(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.looks(2)  # the first look counts for nothing: nobody has seen what was before
    assert rig.told["told"] is None
    rig.looks(0.5)
    assert rig.told == {
        "kernel": "k", "pid": PID, "name": "train.ipynb", "path": "train.ipynb", "held": 5 * GIB,
        "idle": 120.0, "told": 0.0, "due": {"stop": 240.0}, "rests": 0.0, "put_off": False,
    }  # fmt: skip
    rig.looks(3.5)
    assert rig.kernels.ended == []
    rig.looks(0.5)
    assert rig.kernels.ended == ["k"]
    assert len(caplog.records) == 2


@pytest.mark.parametrize(
    "used",
    [
        (changed(IDLE, unused=None, utilisation=30),),
        (changed(IDLE, unused=None, utilisation=0),),
        (changed(IDLE, unused=1001.0),),
        (changed(IDLE, call=True),),
        (changed(IDLE, notebook=replace(NOTEBOOK, state="busy")),),
        (changed(IDLE, notebook=replace(NOTEBOOK, active=901.0)),),
        (changed(IDLE, held=1),),
        (IDLE, changed(IDLE, pid=PID + 1, held=GIB)),  # a process that has come
    ],
)
def test_any_use_begins_anew(rig: Rig, used: tuple[ProcessRow, ...]) -> None:
    rig.looks(6)
    rig.looks(0.5, *used)
    assert rig.told["idle"] == 0.0
    rig.looks(1, IDLE)
    assert rig.told["told"] is None
    assert rig.kernels.ended == []


@pytest.mark.parametrize("sign", [1, -1], ids=["more seconds", "those of a child that has ended are gone"])
def test_work_of_the_cpu_is_use_whatever_the_kernel_says(rig: Rig, sign: int) -> None:
    for _ in range(20):
        rig.looks(0.5)
        rig.cpu += sign * (30.0 * idle_actions.AT_WORK + 1.0)

    assert rig.told["idle"] == 0.0


@pytest.mark.parametrize(
    "table",
    [
        {"error": "no driver"},
        {"stale_since": 1999.0},
        {"time": 0.0},
        {"gpus": (gpu_row(name="A100", error="its list was refused"),)},
        {"gpus": (gpu_row(listed=False),), "processes": (IDLE, changed(ROW, pid=0, who="unknown", unlisted="never"))},
    ],
)
def test_what_cannot_be_seen_is_no_idle_time_and_nothing_is_done(rig: Rig, table: dict[str, Any]) -> None:
    rig.looks(5.5)
    seen, rig.table = rig.table, replace(rig.table, **table)
    for _ in range(20):
        with pytest.raises(idle_actions._UnseenError):
            rig.looks(0.5)
    assert rig.told["idle"] == 300.0
    assert rig.kernels.ended == []
    rig.table = seen
    rig.looks(1)
    assert rig.kernels.ended == ["k"]


def test_not_today_is_said_once(rig: Rig) -> None:
    assert not rig.steps.put_off(PID, "k")
    rig.looks(2.5)
    assert not rig.steps.put_off(PID, "another")
    assert not rig.steps.put_off(PID + 1, "k")
    assert rig.steps.put_off(PID, "k")
    assert not rig.steps.put_off(PID, "k")
    assert rig.told["due"] == {"stop": 240.0 + 86400.0}
    rig.looks(10)
    assert rig.kernels.ended == []


def test_a_kernel_that_was_restarted_is_another_one(rig: Rig) -> None:
    rig.looks(3)
    (rig.kernels.there[OTHER_PID],) = [rig.kernels.there.pop(PID)]
    rig.looks(0.5)

    assert rig.told["idle"] == 0.0


def test_a_flawed_file_is_said_and_nothing_is_done(rig: Rig) -> None:
    rig.looks(5.5)
    policy.FILE.write_text(FILE.replace("6m", "1m"))
    with pytest.raises(PolicyError, match=r"\[idle\]: `stop` comes after"):
        rig.looks(0.5)
    policy.FILE.unlink()
    rig.looks(20)
    assert rig.kernels.ended == []


def test_a_kernel_that_was_started_elsewhere_is_left_alone_and_those_of_the_server_are_not(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_actions, "_cpu", lambda *pids: sum(0.0 * psutil.Process(pid).pid for pid in pids))
    rig.kernels.there[-1] = replace(NOTEBOOK, path="there.ipynb", kernel="elsewhere")
    rig.looks(1)
    read = rig.steps.read()
    rig.looks(8)

    assert [one["kernel"] for one in read["notebooks"]] == ["k"]
    assert set(rig.kernels.ended) == {"k"}


@pytest.mark.parametrize(
    "then",
    [{PID: replace(NOTEBOOK, state="busy")}, {PID: replace(NOTEBOOK, active=901.0)}, {OTHER_PID: NOTEBOOK}],
)
def test_one_that_is_used_after_a_look_is_left_alone(rig: Rig, then: dict[int, Notebook]) -> None:
    rig.looks(6)
    rig.then = then  # by what the server knows
    rig.looks(0.5)

    assert rig.kernels.ended == []


def test_not_today_counts_while_another_one_is_shut_down(rig: Rig) -> None:
    said = list[bool]()
    rig.kernels.meanwhile = lambda _: said.append(rig.steps.put_off(OTHER_PID, "other"))
    rig.kernels.there = {PID: NOTEBOOK, OTHER_PID: OTHER}
    rig.looks(6.5, IDLE, OTHER_IDLE)

    assert (said, rig.kernels.ended) == ([True], ["k"])


def test_what_fails_for_one_is_done_for_the_others(rig: Rig) -> None:
    def fail(kernel: str) -> None:
        if kernel == "k":
            raise RuntimeError("of any make")

    rig.kernels.meanwhile = fail
    rig.kernels.there = {PID: NOTEBOOK, OTHER_PID: OTHER}
    with pytest.raises(RuntimeError, match="of any make"):
        rig.looks(6.5, IDLE, OTHER_IDLE)
    assert rig.kernels.ended == ["other"]


def test_what_cannot_be_parked_is_asked_once_and_shut_down_at_its_hour(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    policy.FILE.write_text(PARKS)
    rig.looks(2.5, ASKED)
    assert rig.told["due"] == {"park": 120.0, "stop": 240.0}
    rig.looks(2)
    assert (rig.asked, rig.told["due"]) == ([PID], {"stop": 120.0})
    assert "it was not parked. Stop them first." in caplog.text
    rig.looks(2.5)  # what it did at the question is no use, and the look after it counts for nothing
    assert (rig.asked, rig.kernels.ended) == ([PID], ["k"])


PARKED = replace(REPORTS, parked=Parked(size=4 * GIB))


@pytest.mark.parametrize(
    ("file", "looks", "asked", "ended", "idle"),
    [
        # What is unknown of it is no idle time.
        (FILE, [(20, changed(ROW, unused=None, utilisation=None))], 0, 0, 0.0),
        (FILE, [(20, changed(IDLE, notebook=replace(NOTEBOOK, state="")))], 0, 0, 0.0),
        (FILE, [(20, changed(IDLE, held=None))], 0, 0, 0.0),
        # What is parked is not parked again, and is shut down if most of it stays.
        (PARKS, [(4.5, ASKED), (2.5, changed(ASKED, held=GIB, unused=1500.0, use=PARKED))], 1, 0, 0.0),
        (PARKS, [(4.5, ASKED), (2.5, changed(ASKED, unused=1500.0, use=PARKED))], 1, 1, 360.0),
        # A cell after it was asked is use.
        (PARKS, [(4.5, ASKED), (0.5, changed(ASKED, notebook=replace(NOTEBOOK, active=901.0)))], 1, 0, 0.0),
        # What cannot be asked, and what was parked before, is not.
        (PARKS, [(4.5, IDLE)], 0, 0, 240.0),
        (PARKS, [(4.5, changed(ASKED, use=PARKED))], 0, 0, 240.0),
    ],
)
def test_what_was_done_after_looks(
    rig: Rig, file: str, looks: list[tuple[float, ProcessRow]], asked: int, ended: int, idle: float
) -> None:
    rig.parks = True
    policy.FILE.write_text(file)
    for minutes, row in looks:
        rig.looks(minutes, row)

    assert (rig.asked, rig.kernels.ended, rig.told["idle"]) == ([PID] * asked, ["k"] * ended, idle)


def test_what_cannot_be_asked_is_not_announced_to_be_parked(rig: Rig) -> None:
    policy.FILE.write_text(PARKS)
    rig.looks(2.5, IDLE)

    assert rig.told["due"] == {"stop": 240.0}


def test_one_that_was_not_asked_since_it_was_renamed_is_asked_later(rig: Rig) -> None:
    policy.FILE.write_text(PARKS)
    rig.looks(4, ASKED)
    rig.then = {PID: replace(NOTEBOOK, path="tried.ipynb")}
    rig.looks(0.5)
    assert rig.asked == []
    rig.looks(0.5)
    assert rig.asked == [PID]


def test_not_today_counts_while_it_is_asked(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig, "meanwhile", lambda: rig.steps.put_off(PID, "k"))
    policy.FILE.write_text(PARKS)
    rig.looks(8, ASKED)

    assert (rig.asked, rig.told["put_off"], rig.kernels.ended) == ([PID], True, [])


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("", ""),
        ('policy = "growth --release"\n', ""),
        ('policy = "limit 50%"\n', "policy there is `limit 50%`"),
        ('policy = "growth"\n', "policy there is `growth`"),
        (f'policy = "growth --release"\npolicies = {{ {os.getegid()} = "growth" }}\n', "policy there is `growth`"),
        ('ceiling = "limit 50%"\n', "ceiling there is `limit 50%`"),
        ('policy = "nonsense"\n', ""),  # which is told elsewhere
    ],
)
def test_what_the_file_itself_keeps_from_being_parked_is_logged_once(
    rig: Rig, caplog: pytest.LogCaptureFixture, says: str, why: str
) -> None:
    policy.FILE.write_text(f"{says}{PARKS}")
    steps_of(rig.kernels, logging.getLogger("tests"))
    found = [one.name for one in idle(ThisMachine(environ={}))]
    told = [record.getMessage() for record in caplog.records]

    assert len(told) == bool(why)
    assert found == ["idle.not_parked"] * bool(why) + ["idle.holds"]
    assert why in "".join(told)
    policy.FILE.write_text(f"{says}{FILE}")
    assert steps_of(rig.kernels, logging.getLogger("tests")) == "idle"
    assert [record.getMessage() for record in caplog.records] == told


@pytest.mark.parametrize("name", ["parking", "bound"])
def test_a_setting_that_was_removed_is_logged_at_the_start(
    rig: Rig, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    policy.FILE.write_text(f'{name} = "ask"\n')
    steps_of(rig.kernels, logging.getLogger("tests"))

    assert [record.getMessage() for record in caplog.records] == [f"tfgpu_magic: {removed(name, str(policy.FILE))}"]


@pytest.mark.parametrize("fails", [True, False], ids=["fails", "takes too long"])
def test_a_look_that_fails_or_takes_too_long_has_seen_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    def see(*_: object) -> Table:
        if fails:
            raise MonitorError("the board cannot be read")
        end.wait()
        return rig.table

    rig.looks(5.5)
    end = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(rig.steps._watcher, "read", see)
        patch.setattr(idle_actions, "LOOK_TIMEOUT", 60.0 if fails else 0.01)
        with pytest.raises(MonitorError) if fails else nullcontext():
            rig.looks(0.5)
        end.set()
    rig.steps._looking = None  # its loop has ended
    rig.looks(0.5)
    assert (rig.told["idle"], rig.kernels.ended) == (330.0, [])
    rig.looks(0.5)
    assert rig.kernels.ended == ["k"]


@pytest.mark.parametrize(("text", "told"), [(FILE, "idle"), ("[", "idle"), ('[bound]\nhard = "40%"', "")])
def test_a_page_learns_whether_the_server_tells_of_idle_notebooks(rig: Rig, text: str, told: str) -> None:
    policy.FILE.write_text(text)

    assert steps_of(rig.kernels, logging.getLogger("tests")) == told
