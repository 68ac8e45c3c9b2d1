"""Unpickles what an isolated cell returns in the notebook's kernel: all of it, or as much as is possible."""

from __future__ import annotations

import contextlib
import pickle
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tfgpu_magic.isolate.cells.facts import CellFacts
from tfgpu_magic.isolate.values import pickling
from tfgpu_magic.isolate.values.guard import Unpickler


@dataclass(slots=True)
class Arrival:
    """What has arrived of a cell.

    Attributes:
        facts: the facts that its process reports.
        values: what was unpickled, by name; the name of the cell's value is empty.
        lost: why a value could not be unpickled, by name.
    """

    facts: CellFacts
    values: dict[str, object] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)


def arrive(parts: Sequence[memoryview]) -> Arrival:
    """Unpickle what a cell returns: each pickle by itself, with all that is in it.

    Args:
        parts: the parts of what it returns, its facts first.
    """
    facts: CellFacts = pickle.loads(parts[0])  # noqa: S301  # from our own process
    arrival, at = Arrival(facts), 1
    for names, count in facts.given:
        try:
            with _interruptible():
                arrival.values |= pickling.load(parts[at : at + count], Unpickler)
        except (Exception, KeyboardInterrupt) as error:  # a module that is not here; an object's own __setstate__
            arrival.lost |= dict.fromkeys(names, str(error) or type(error).__name__)
        at += count
    return arrival


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C break off what takes long here; otherwise it would go to the call, which is over."""
    if threading.current_thread() is not threading.main_thread() or not callable(signal.getsignal(signal.SIGINT)):
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
