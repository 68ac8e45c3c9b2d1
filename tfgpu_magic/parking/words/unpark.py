"""`%tf_gpu unpark`: brings a parked notebook back to the GPU before its next cell does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath

from tfgpu_magic import host
from tfgpu_magic.errors import PolicyError, Refused
from tfgpu_magic.parking import answers as parking
from tfgpu_magic.parking import client, reported
from tfgpu_magic.parking.inside import notebook
from tfgpu_magic.parking.inside.notebook import interruptible
from tfgpu_magic.parking.inside.showing import Shown
from tfgpu_magic.parking.record import ParkedProcess
from tfgpu_magic.parking.words.park import pid_of, reports
from tfgpu_magic.policy.arguments import separate
from tfgpu_magic.policy.word import Line

_WITHOUT = "--without-gpu"


def answer(line: Line) -> None:
    """Bring it back, or say that it goes on without."""
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
    """Bring another process back, whoever it is of this user's, and return what has become of it.

    Raises:
        PolicyError: none of that name is parked, or several are.
        Refused: it does not come back.
        MonitorError: the parker cannot be asked.
    """
    entries, known = _parked_entries(), _parked_names()
    pid = pid_of(name, known, "Nothing that is parked")
    called = PurePath(known[pid]).name or f"pid {pid}"
    shown = Shown(host.shell())
    with interruptible():
        outcome = client.unpark(pid, held=entries[pid].held, tell=shown)
    if outcome.refusals:
        raise Refused(f"{called} does not come back. {parking.reasons(outcome.refusals)}", verdict="")
    return parking.other_back(outcome, called)


def _parked_entries() -> dict[int, ParkedProcess]:
    return {pid: one for pid, one in reported.read().items() if one.parked}


def _parked_names() -> dict[int, str]:
    """Return what is parked by pid, each as it is called now: the record has what it was called then."""
    now = reports()
    return {pid: now[pid].notebook if pid in now else one.name for pid, one in _parked_entries().items()}
