"""A look at a driver that hangs or is slow costs its timeout, leaves no process, and its answer is not lost."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.monitor.looks import timed_look
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic import probe
from tfgpu_magic.monitor.look import look

if TYPE_CHECKING:
    from tfgpu_magic.simgpu import Machine

pytestmark = pytest.mark.usefixtures("own_looks")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("function", ["nvmlInitWithFlags", "nvmlDeviceGetMemoryInfo"])
def test_a_hang_costs_the_timeout_and_no_more(machine: Machine, function: str) -> None:
    machine.hang(function, 60)
    start = time.monotonic()
    snapshot = look(timeout=0.3)

    assert time.monotonic() - start < 30  # and not the 60 of the hang
    assert "did not answer within 0.3 s" in (snapshot.error or "")


@pytest.mark.usefixtures("impatient")
def test_a_hang_leaves_no_process_and_a_look_after_it_works(machine: Machine) -> None:
    before = set(psutil.Process().children())
    machine.hang("nvmlDeviceGetMemoryInfo", 60)
    look(timeout=0.3)
    assert "the driver hangs" in (timed_look().error or "")  # it waits for the same call, until that is given up
    machine.clear_faults()

    assert look(10).error is None
    assert set(psutil.Process().children()) <= before


def test_a_driver_that_is_slow_to_start_is_let_finish_and_its_answer_is_seen(machine: Machine) -> None:
    machine.hang("nvmlInit", 2.5)

    first = timed_look()
    until(lambda: machine.calls().get("nvmlInitWithFlags"))
    calls = machine.calls()
    second = look(10)

    assert "still being asked: say it again" in (first.error or "")
    assert "reboot" not in (first.error or "").lower()
    assert (second.error, len(second.gpus)) == (None, 4)
    # The same process: nobody was killed in the driver, and nobody began anew.
    assert machine.calls()["nvmlInitWithFlags"] == calls["nvmlInitWithFlags"]


def test_what_a_slow_driver_said_too_late_is_shown_with_its_age(machine: Machine) -> None:
    machine.hang("nvmlInit", 2.5)
    assert timed_look().error is not None
    until(lambda: not probe._asking)

    snapshot = timed_look()

    assert (snapshot.error, len(snapshot.gpus)) == (None, 4)
    assert snapshot.notes[-1].endswith("old: the driver is slow to answer.")


def test_who_waits_longer_than_a_second_gets_a_word(machine: Machine) -> None:
    said: list[str] = []

    def quick() -> bool:
        """Tell whether nothing is said of a look, as where the machine has nothing else to do."""
        said.clear()
        return look(10, slow=lambda: said.append("quick")).error is None and not said

    until(quick)
    machine.hang("nvmlInit", 2.5)

    assert look(10, slow=lambda: said.append("slow")).error is None
    assert said == ["slow"]


@pytest.mark.usefixtures("impatient")
def test_while_a_child_cannot_be_killed_no_other_joins_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck: list[subprocess.Popen[str]] = []
    monkeypatch.setattr(subprocess.Popen, "kill", lambda process: stuck.append(process))  # as in uninterruptible sleep
    machine.hang("nvmlDeviceGetMemoryInfo", 60)
    look(timeout=5)
    start = time.monotonic()
    snapshot = look()

    assert time.monotonic() - start < 0.5 * SLACK
    assert "an earlier call hangs" in (snapshot.error or "")
    assert len(stuck) == 1
    stuck[0].terminate()


def test_an_interrupted_look_leaves_no_process(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(probe.Probe, "answer", interrupt)

    with pytest.raises(KeyboardInterrupt):
        look()
    assert len(probe._asking) <= 1  # on its way out: the fixture waits for it
