"""What an isolated cell gives, made again in the notebook's kernel: all together, or as much of it as can be."""

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
        facts: what came of it.
        values: what came, by name; the name of the cell's value is empty.
        lost: why something could not be made again, by name.
    """

    facts: CellFacts
    values: dict[str, object] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)


def arrive(parts: Sequence[memoryview]) -> Arrival:
    """Make again what a cell gives: what is in one pickle together, and each pickle for itself.

    Args:
        parts: the parts of what it gives, its facts the first of them.
    """
    facts: CellFacts = pickle.loads(parts[0])  # noqa: S301  # from our own process
    arrival, at = Arrival(facts), 1
    for names, count in facts.given:
        try:
            with _interruptible():
                arrival.values |= pickling.load(parts[at : at + count], Unpickler)
        except (Exception, KeyboardInterrupt) as error:  # a module that is not here; somebody's own __setstate__
            arrival.lost |= dict.fromkeys(names, str(error) or type(error).__name__)
        at += count
    return arrival


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Have Ctrl-C break off what takes long here, where it would otherwise stop the call, which is over."""
    if threading.current_thread() is not threading.main_thread() or not callable(signal.getsignal(signal.SIGINT)):
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
