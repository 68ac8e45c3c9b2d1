"""`%tf_gpu unpark`: brings a parked notebook back to the GPU before its next cell does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath

from tfgpu_magic import host
from tfgpu_magic.errors import PolicyError, Refused
from tfgpu_magic.monitor.driver.look import look
from tfgpu_magic.parking import answers as parking
from tfgpu_magic.parking import ask_kernel, reported
from tfgpu_magic.parking.inside import notebook
from tfgpu_magic.parking.inside.notebook import interruptible
from tfgpu_magic.parking.inside.showing import Shown
from tfgpu_magic.parking.messages import ParkOutcome, Progress
from tfgpu_magic.parking.reported import ParkedProcess
from tfgpu_magic.parking.room import rooms
from tfgpu_magic.parking.words.park import one_of, reports
from tfgpu_magic.policy.arguments import separate
from tfgpu_magic.policy.word import Line

_WITHOUT = "--without-gpu"
LOOK = 1.0  # seconds that a look at the GPUs may take, of which only what is shown depends


def answer(line: Line) -> None:
    """Bring it back, or say that it goes on without; `PolicyError`, `Refused` and `MonitorError` say why not."""
    name, flags = separate(line.rest.split(), {_WITHOUT: ""}, line.word.forms)
    if name and flags:
        raise PolicyError(f"`unpark {line.rest}` cannot be done.{line.word.forms}")
    own = notebook.of(host.shell())
    if name:
        print(_unpark_other(" ".join(name)))
    elif flags and own.parked:  # the gate has let this cell pass
        print(parking.without(host.here()))
    elif own.parked:
        own.bring_back()
        print(f"This {host.here()} is back on the GPU.")
    else:  # a cell of a parked notebook has brought it back before it runs
        print(f"This {host.here()} is not parked: what it holds of the GPUs is there.")


def offers(tokens: Sequence[str], _: Callable[[], Sequence[str]]) -> list[str]:
    """Return the parked notebooks' names."""
    return [] if tokens else [PurePath(name).name for name in _parked_names().values() if name]


def _unpark_other(name: str) -> str:
    """Bring another notebook back, and return what has become of it."""
    known = _parked_names()
    pid, called = one_of(name, known, "Nothing that is parked")
    shown = Shown(host.shell())

    def tell(entry: ParkedProcess) -> None:
        room = rooms(entry.held, look(LOOK)) if entry.wanted else ()
        shown(Progress(step="waits", rooms=room) if room else Progress(step="copies back", size=entry.size))

    try:
        with interruptible():
            outcome = ask_kernel.ask(pid, "back", tell=tell) or ParkOutcome()
    except KeyboardInterrupt:
        ask_kernel.ask(pid, "stay", ask_kernel.BEGIN_TIMEOUT)
        raise Refused(f"Interrupted: {called} stays parked, and nothing is lost.", verdict="") from None
    if outcome.refusals:
        raise Refused(f"{called} does not come back. {parking.reasons(outcome.refusals)}", verdict="")
    return parking.other_back(outcome, called)


def _parked_names() -> dict[int, str]:
    """Return what is parked by pid, each as it is called now."""
    now = reports()
    return {pid: now[pid].notebook if pid in now else one.name for pid, one in reported.read().items() if one.parked}
