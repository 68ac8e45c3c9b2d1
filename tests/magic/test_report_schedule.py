"""When a kernel reports, and when it shows its server that it is in use: without a kernel, a thread or a clock."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tfgpu_magic.notebook.report_schedule import (
    ACTIVITY_EVERY,
    EVERY,
    SHARE,
    Due,
    Event,
    Reported,
    ReporterDeed,
    ReporterState,
    Turned,
    Used,
    step,
    wait,
)

IDLE = ReporterState(active=0.0, shown=0.0)
RUNS = ReporterState(active=0.0, shown=0.0, running=True)
JOB = ReporterState(active=0.0, shown=0.0, jobs=True)
READY = ReporterState(active=0.0, shown=0.0, ready=True)
PROGRAM = ReporterState(active=0.0, program=True)


def test_it_needs_nothing_but_python() -> None:
    code = "import sys, tfgpu_magic.notebook.report_schedule; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    ours = {name for name in done.stdout.split() if name.startswith("tfgpu_magic")}
    assert ours == {"tfgpu_magic", "tfgpu_magic.notebook", "tfgpu_magic.notebook.report_schedule"}
    assert not {"psutil", "zmq", "tornado", "IPython"} & set(done.stdout.split())


@pytest.mark.parametrize(
    ("state", "event", "after", "deeds"),
    [
        (IDLE, Turned(running=True), ReporterState(9.0, shown=0.0, running=True), (ReporterDeed.WAKE,)),
        (RUNS, Turned(running=False), ReporterState(9.0, shown=0.0), (ReporterDeed.WAKE,)),
        (IDLE, Used(), ReporterState(9.0, shown=0.0), (ReporterDeed.WAKE,)),
        (ReporterState(9.0 - EVERY / 2), Used(), ReporterState(9.0 - EVERY / 2), ()),
        (ReporterState(99.0), Used(), ReporterState(9.0), (ReporterDeed.WAKE,)),  # the clock was set back
        (IDLE, Due(jobs=True), JOB, ()),
        (JOB, Due(jobs=False), ReporterState(9.0, shown=0.0), ()),  # it was in use until its last job ended
        (IDLE, Due(jobs=False), IDLE, ()),
        (ReporterState(0.0), Due(jobs=True), ReporterState(0.0, jobs=True, shown=9.0), (ReporterDeed.SHOW_ACTIVITY,)),
        (ReporterState(0.0, running=True), Due(jobs=True), ReporterState(0.0, running=True, jobs=True), ()),
        (IDLE, Reported(0.0, ready=True, longest=60.0), READY, ()),
        (READY, Reported(0.5, ready=False, longest=60.0), ReporterState(0.0, shown=0.0, pause=0.5 / SHARE), ()),
        (IDLE, Reported(9.0, ready=False, longest=60.0), ReporterState(0.0, shown=0.0, pause=60.0), ()),
    ],
)
def test_what_an_event_changes(
    state: ReporterState, event: Event, after: ReporterState, deeds: tuple[ReporterDeed, ...]
) -> None:
    assert step(state, event, 9.0) == (after, deeds)


@pytest.mark.parametrize(
    ("state", "now", "seconds"),
    [
        (IDLE, 9.0, None),
        (RUNS, 9.0, EVERY),
        (READY, 9.0, EVERY),
        (PROGRAM, 9.0, EVERY),
        (ReporterState(0.0, program=True, pause=7.0), 9.0, 7.0),
        (JOB, 9.0, EVERY),
        (JOB, ACTIVITY_EVERY - EVERY / 4, EVERY / 4),
        (JOB, 2 * ACTIVITY_EVERY, 0.0),
        (ReporterState(0.0, jobs=True, shown=99.0), 9.0, 0.0),  # the clock was set back
    ],
)
def test_how_long_it_waits(state: ReporterState, now: float, seconds: float | None) -> None:
    assert wait(state, now) == seconds


@pytest.mark.parametrize(("state", "busy"), [(IDLE, False), (RUNS, True), (JOB, True), (PROGRAM, None)])
def test_who_is_busy(state: ReporterState, busy: bool | None) -> None:
    assert state.busy is busy
