"""What is due for a running call, on data alone: no process, no clock."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tfgpu_magic.ground.message import Message
from tfgpu_magic.isolate import watch
from tfgpu_magic.isolate.watch import GRACE, PATIENCE, CallStage, Deed, Event, State, Unreadable

INT, KILL = signal.SIGINT, signal.SIGKILL
FULL = Unreadable("Too many open files")

Moment = tuple[float, "Event | Unreadable"]
Done = tuple[float, object]


def play(*moments: Moment, timeout: float | None = None) -> tuple[State, list[Done]]:
    """Return the state after what happens to a call, with what comes by itself between; and what is done, and when.

    Messages are there by their last sentence.
    """
    state, done = watch.begin(timeout, 0.0), list[Done]()

    def step(event: Event | Unreadable, now: float) -> None:
        nonlocal state
        state, deeds = watch.step(state, event, now)
        for deed in deeds:
            done.append((now, str(deed).split(". ")[-1] if isinstance(deed, Message) else deed))

    for when, event in moments:
        while state.due and (now := min(state.due.values())) < when:
            due = watch.due(state, now)
            assert due is not None
            step(due, now)
        step(event, when)
    return state, done


NEXT, SECOND = "The next interrupt kills it.", "The second interrupt from now kills it."
ONCE = "It is asked for every second."
KILLED = "The call had answered; its process did not end in the call's timeout, and was killed."
LATER = 1e6, Event.STARTED  # nothing comes of it but what is due before

CALLS: dict[str, tuple[float | None, Sequence[Moment], CallStage, list[Done]]] = {
    "a warm one": (None, [(0.1, Event.STARTED), (9, Event.LEFT)], CallStage.LEAVING, []),
    "one that waits for the import": (None, [(2, Event.STARTED)], CallStage.RUNNING, [(0.7, Deed.ANNOUNCE_WARMING)]),
    "one that is interrupted before it has a process": (
        None,
        [(0.1, Event.INTERRUPTED)],
        CallStage.RUNNING,
        [(0.1, Deed.CANCEL)],
    ),
    "one that heeds an interrupt": (
        None,
        [(0.1, Event.STARTED), (1, Event.INTERRUPTED), (2, Event.LEFT)],
        CallStage.LEAVING,
        [(1, INT)],
    ),
    "one that is interrupted often before it is offered to kill it": (
        None,
        [(0.1, Event.STARTED), *((when, Event.INTERRUPTED) for when in (1, 2, 3, 7))],
        CallStage.KILLED,
        [(1, INT), (2, INT), (3, INT), (1 + PATIENCE, NEXT), (7, KILL)],
    ),
    "one that is killed at once": (None, [(0.1, Event.STARTED), (1, Event.KILLED)], CallStage.KILLED, [(1, KILL)]),
    "one that is killed, and interrupted again": (
        None,
        [(0.1, Event.STARTED), (1, Event.KILLED), (2, Event.KILLED), (3, Event.INTERRUPTED), (3, Event.LEFT)],
        CallStage.KILLED,
        [(1, KILL)],
    ),
    "one that hangs in a driver": (
        None,
        [(0.1, Event.STARTED), (1, Event.KILLED), LATER],
        CallStage.RUNNING,
        [(1, KILL)],
    ),
    "one that heeds its timeout": (
        3,
        [(1, Event.STARTED), (5, Event.LEFT), (6, Event.LEFT)],
        CallStage.LEAVING,
        [(0.7, Deed.ANNOUNCE_WARMING), (4, INT)],
    ),
    "one that does not": (
        3,
        [(0.1, Event.STARTED), (100, Event.LEFT)],
        CallStage.KILLED,
        [(3.1, INT), (3.1 + GRACE, KILL)],
    ),
    "one whose threads go on": (
        None,
        [(0.1, Event.STARTED), (1, Event.LEFT), (9, Event.INTERRUPTED), (10, Event.INTERRUPTED)],
        CallStage.KILLED,
        [(1 + PATIENCE, SECOND), (9, NEXT), (10, KILL)],
    ),
    "one whose threads go on after its timeout": (
        3,
        [(0, Event.STARTED), (1, Event.LEFT), (3 + GRACE + 1, Event.LEFT)],
        CallStage.KILLED,
        [(1 + PATIENCE, SECOND), (3 + GRACE, KILLED), (3 + GRACE, KILL)],
    ),
    "one that answers long after its timeout": (
        3,
        [(0, Event.STARTED), (50, Event.LEFT), (50 + GRACE + 1, Event.LEFT)],
        CallStage.KILLED,
        [(3, INT), (50 + PATIENCE, SECOND), (50 + GRACE, KILLED), (50 + GRACE, KILL)],
    ),
    "one that sends pieces, whose wait is interrupted": (
        3,
        [(0, Event.STARTED), (1, Event.ANSWERED), (20, Event.INTERRUPTED), (21, Event.LEFT)],
        CallStage.LEAVING,
        [(20, INT)],
    ),
    "one whose answer cannot be taken": (
        None,
        [(0, Event.STARTED), (1, FULL), (2.5, FULL), (4, Event.LEFT)],
        CallStage.LEAVING,
        [(1, ONCE), (2, Deed.ASK_AGAIN), (3.5, Deed.ASK_AGAIN)],
    ),
}


@pytest.mark.parametrize("which", CALLS)
def test_what_is_done_about_a_call_and_when(which: str) -> None:
    timeout, moments, stage, expected = CALLS[which]

    state, done = play(*moments, timeout=timeout)

    assert [(round(when, 3), what) for when, what in done] == expected
    assert state.stage in (stage, CallStage.GIVEN_UP if LATER in moments else stage)


def test_an_interrupt_takes_nothing_of_an_answer_that_is_there() -> None:
    start = (0.1, Event.STARTED)

    assert play(start, (1, Event.LEFT), (2, Event.INTERRUPTED))[0].interrupted_late
    assert not play(start, (1, Event.INTERRUPTED), (2, Event.LEFT))[0].interrupted_late


def test_a_killed_process_that_stays_is_given_up() -> None:
    state, _ = play((0.1, Event.STARTED), (1, Event.KILLED), (1e6, Event.LEFT))

    assert state.stage is CallStage.GIVEN_UP
    assert not state.due


def test_it_needs_nothing_but_messages() -> None:
    absent = "import sys; sys.modules |= dict.fromkeys(['psutil', 'zmq', 'tornado', 'IPython'])"
    code = f"{absent}; import tfgpu_magic.isolate.watch"
    ours = "print([name for name in sys.modules if name.startswith('tfgpu_magic.')])"
    done = subprocess.run([sys.executable, "-c", f"{code}; {ours}"], capture_output=True, text=True, check=True)

    above = {"tfgpu_magic._version", "tfgpu_magic.isolate", "tfgpu_magic.isolate.watch"}
    assert {name for name in eval(done.stdout) if not name.startswith("tfgpu_magic.ground")} <= above
