"""What is due for a running call, decided on data alone: its interrupts, its timeout, its answer and its end. Pure.

`run` reads what its process sends, and does the deeds.
"""

from __future__ import annotations

import enum
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from tfgpu_magic.ground.message import Message, msg

GRACE = 60.0
"""Seconds from the interrupt of a call that has taken too long to its end, if it does not end by itself."""

PATIENCE = 5.0
"""Seconds from an interrupt, or from the answer, to the line that offers to kill a call that has not ended."""

WARMING_NOTICE = 0.7
"""Seconds after which a call that waits for the fork server to become warm says so."""

_TEARDOWN = 60.0  # seconds in which a killed process must be gone: the system frees its memory, perhaps hundreds of GiB
_ASK_AGAIN = 1.0  # seconds between two requests for what cannot be taken


class Event(enum.Enum):
    """What happens to a call; the second group comes when it is due."""

    STARTED = enum.auto()
    """Its process has a pid."""
    INTERRUPTED = enum.auto()
    KILLED = enum.auto()
    """Somebody wants its process to be killed."""
    ANSWERED = enum.auto()
    """It has answered, and is asked for its answer in pieces."""
    LEFT = enum.auto()
    """It has answered, and was given leave to end."""

    WARMING_TAKES_LONG = enum.auto()
    INTERRUPT_TAKES_LONG = enum.auto()
    TIMEOUT_ENDS = enum.auto()
    GRACE_ENDS = enum.auto()
    LEAVING_TAKES_LONG = enum.auto()
    LEAVING_ENDS = enum.auto()
    ASKED_AGAIN = enum.auto()
    TEARDOWN_ENDS = enum.auto()


class Unreadable(NamedTuple):
    """An event: what the call sends cannot be taken, because there are no descriptors or there is no room."""

    reason: str


class Deed(enum.Enum):
    """What is to be done, besides showing a message and sending a signal."""

    ANNOUNCE_WARMING = enum.auto()
    ASK_AGAIN = enum.auto()
    CANCEL = enum.auto()
    """It has no process yet that could be interrupted: nobody waits for it any more."""


Deeds: TypeAlias = tuple[Deed | Message | signal.Signals, ...]


class CallStage(enum.Enum):
    """The stage of a call on the way to its end."""

    RUNNING, INTERRUPTED, WARNED, LEAVING, KILLED, GIVEN_UP = range(6)


_BUSY = (CallStage.RUNNING, CallStage.INTERRUPTED, CallStage.WARNED)
_OVER = (CallStage.KILLED, CallStage.GIVEN_UP)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What is known of a call that runs. Times are those of one monotonic clock, in seconds.

    Attributes:
        timeout: seconds that it may take; None is no limit.
        began: when its process started, or before that, when it was asked for.
        due: the events that come by themselves, and when.
        started: whether it has a process.
        answered: whether it has answered.
        interrupted: whether it was interrupted.
        interrupted_late: whether the last interrupt came when it had answered, which takes nothing of the answer.
        timed_out: whether it has exceeded its timeout.
        unreadable: whether something that it sent could not be taken.
    """

    timeout: float | None
    began: float
    stage: CallStage = CallStage.RUNNING
    due: Mapping[Event, float] = field(default_factory=dict)
    started: bool = False
    answered: bool = False
    interrupted: bool = False
    interrupted_late: bool = False
    timed_out: bool = False
    unreadable: bool = False


def begin(timeout: float | None, now: float) -> State:
    """Return the state of a call whose process was asked for now."""
    return State(timeout=timeout, began=now, due={Event.WARMING_TAKES_LONG: now + WARMING_NOTICE})


def due(state: State, now: float) -> Event | None:
    """Return the first event that is due; None if none is."""
    first = min(state.due, key=lambda event: state.due[event], default=None)
    return first if first is not None and now >= state.due[first] else None


def step(state: State, event: Event | Unreadable, now: float) -> tuple[State, Deeds]:
    """Return the state after an event, and what is to be done."""
    state = replace(state, due={one: when for one, when in state.due.items() if one is not event})
    return _read(state, event, now) if isinstance(event, Unreadable) else _STEPS[event](state, now)


def _waiting(state: State, event: Event, when: float) -> State:
    return replace(state, due={**state.due, event: when})


def _read(state: State, event: Unreadable, now: float) -> tuple[State, Deeds]:
    said = msg("What the call sends cannot be taken ({why}). It is asked for every second.", why=event.reason)
    after = _waiting(replace(state, unreadable=True), Event.ASKED_AGAIN, now + _ASK_AGAIN)
    return after, () if state.unreadable else (said,)


def _start(state: State, now: float) -> tuple[State, Deeds]:
    timed = {} if state.timeout is None else {Event.TIMEOUT_ENDS: now + state.timeout}
    return replace(state, started=True, began=now, due=timed), ()


def _time_out(state: State, now: float) -> tuple[State, Deeds]:
    return _waiting(replace(state, timed_out=True), Event.GRACE_ENDS, now + GRACE), (signal.SIGINT,)


def _interrupt(state: State, now: float) -> tuple[State, Deeds]:
    """Interrupt the process, unless it has answered; kill it once that was announced."""
    if state.stage in _OVER:
        return state, ()
    if not state.started:
        return state, (Deed.CANCEL,)
    state = replace(state, interrupted=True, interrupted_late=state.answered)
    if state.stage is CallStage.WARNED:
        return _kill(state, now)
    if state.stage is CallStage.LEAVING:
        return _warn(state, now)
    if state.stage is CallStage.RUNNING:
        state = _waiting(replace(state, stage=CallStage.INTERRUPTED), Event.INTERRUPT_TAKES_LONG, now + PATIENCE)
    return state, (signal.SIGINT,)


def _end_by_force(state: State, now: float) -> tuple[State, Deeds]:
    return _interrupt(state if state.stage in _OVER else replace(state, stage=CallStage.WARNED), now)


def _warn(state: State, _: float) -> tuple[State, Deeds]:
    how = "answered" if state.answered else "been interrupted"
    said = msg("The call has {how}, and has not ended. The next interrupt kills it.", how=how)
    return replace(state, stage=CallStage.WARNED), (said,)


def _wait_for_pieces(state: State, _: float) -> tuple[State, Deeds]:
    """Go on: interrupts may end the wait for the pieces."""
    state = replace(state, answered=True)
    return replace(state, stage=CallStage.RUNNING, due={}) if state.stage in _BUSY else state, ()


def _leave(state: State, now: float) -> tuple[State, Deeds]:
    """Wait for its end, as long as its threads and exit functions take to save something."""
    state = replace(state, answered=True)
    if state.stage not in _BUSY:
        return state, ()
    due = {Event.LEAVING_TAKES_LONG: now + PATIENCE}
    if state.timeout is not None:
        due[Event.LEAVING_ENDS] = max(now, state.began + state.timeout) + GRACE
    return replace(state, stage=CallStage.LEAVING, due=due), ()


def _remark(state: State, _: float) -> tuple[State, Deeds]:
    text = (
        "The call has answered, and its process has not ended: threads or exit functions of it still run. The second "
        "interrupt from now kills it."
    )
    return state, (msg(text),)


def _cut_off(state: State, now: float) -> tuple[State, Deeds]:
    said = msg("The call had answered; its process did not end in the call's timeout, and was killed.")
    state, deeds = _kill(state, now)
    return state, (said, *deeds)


def _kill(state: State, now: float) -> tuple[State, Deeds]:
    return replace(state, stage=CallStage.KILLED, due={Event.TEARDOWN_ENDS: now + _TEARDOWN}), (signal.SIGKILL,)


_STEPS: Mapping[Event, Callable[[State, float], tuple[State, Deeds]]] = {
    Event.STARTED: _start,
    Event.INTERRUPTED: _interrupt,
    Event.KILLED: _end_by_force,
    Event.ANSWERED: _wait_for_pieces,
    Event.LEFT: _leave,
    Event.WARMING_TAKES_LONG: lambda state, _: (state, (Deed.ANNOUNCE_WARMING,)),
    Event.INTERRUPT_TAKES_LONG: _warn,
    Event.TIMEOUT_ENDS: _time_out,
    Event.GRACE_ENDS: _kill,
    Event.LEAVING_TAKES_LONG: _remark,
    Event.LEAVING_ENDS: _cut_off,
    Event.ASKED_AGAIN: lambda state, _: (state, (Deed.ASK_AGAIN,)),
    Event.TEARDOWN_ENDS: lambda state, _: (replace(state, stage=CallStage.GIVEN_UP), ()),
}
