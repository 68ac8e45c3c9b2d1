"""What a notebook and the process of its cell exchange: names and settings are sent, and facts and values come back."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tfgpu_magic.errors import Unpicklable
from tfgpu_magic.isolate.process.interrupt import handled
from tfgpu_magic.isolate.values import pickling
from tfgpu_magic.isolate.values.pickling import Pickled


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSettings:
    """The settings of a cell for its process.

    Attributes:
        source: its text.
        number: its number in the notebook.
        outputs: the names to bring back.
        unsent: why names that it may read could not be sent, by name.
        passing: the names that nothing but its imports and loops bind.
        shell: traits of the notebook's shell that the cell's shell takes over.
        traceback: the mode of its tracebacks.
        cells: the notebook's cells, for tracebacks that go through their functions: number and text, by the file name
            that the compiler has for them.
    """

    source: str
    number: int
    outputs: tuple[str, ...] = ()
    unsent: Mapping[str, str] = field(default_factory=dict)
    passing: frozenset[str] = frozenset()
    shell: Mapping[str, object]
    traceback: str = "Context"
    cells: Mapping[str, tuple[int, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFacts:
    """The facts about a cell that has ended.

    Attributes:
        stays: names that it has bound and that stay behind.
        lacks: names to bring back that it has not bound.
        kept: why something cannot be brought back, by name; the value's name is empty.
        shown: how its value is displayed there, data and metadata; None if it is not.
        given: the pickles of what is brought back: the names in each, and how many of the parts after this one it has;
            the value's name is empty.
        drawn: the names of random generators that it has drawn from, and that stay as they were in the notebook.
    """

    stays: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    kept: Mapping[str, str]
    shown: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None
    given: tuple[tuple[tuple[str, ...], int], ...] = ()
    drawn: tuple[str, ...] = ()


def pickled(inputs: Mapping[str, object], surely: frozenset[str]) -> tuple[Pickled, dict[str, str]]:
    """Pickle the names together, so that what two of them share stays shared.

    Args:
        inputs: the names, with their values.
        surely: those that the cell cannot do without.

    Returns:
        The pickle, and why others could not be sent, by name.

    Raises:
        Unpicklable: something that the cell cannot do without cannot be sent; the message names all such.
    """
    try:
        return pickling.dump(dict(inputs)), {}
    except Unpicklable:
        errors = dict[str, Unpicklable]()
    for name, value in inputs.items():
        try:
            pickling.dump(value, name)
        except Unpicklable as error:
            errors[name] = error
    refused = [error for name, error in errors.items() if name in surely]
    if refused:
        text = "\n".join([*map(str, refused), "Make it in the cell, or name with -i what to send."])
        raise Unpicklable(text, what=", ".join(error.what for error in refused)) from None
    sent = {name: value for name, value in inputs.items() if name not in errors}
    return pickling.dump(sent), {name: str(error) for name, error in errors.items()}


@dataclass(slots=True)
class Arrival:
    """What has arrived of a cell.

    Attributes:
        facts: the facts that its process reports.
        values: what was unpickled, by name; the name of the cell's value is empty.
        lost: why a value could not be unpickled, by name.
        rest: the parts of what could not be unpickled, its facts first, with which it can be tried again.
    """

    facts: CellFacts
    values: dict[str, object] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    rest: Sequence[memoryview] = ()


def in_one_piece(parts: Sequence[memoryview]) -> bool:
    """Tell whether several values are in one pickle, so that they could also be had one by one."""
    facts: CellFacts = pickle.loads(parts[0])  # noqa: S301  # from our own process
    return len(facts.given) == 1 and len(facts.given[0][0]) > 1


def arrive(parts: Sequence[memoryview]) -> Arrival:
    """Unpickle what a cell returns: each pickle by itself, with all that is in it.

    Args:
        parts: the parts of what it returns, its facts first.
    """
    facts: CellFacts = pickle.loads(parts[0])  # noqa: S301  # from our own process
    arrival, at = Arrival(facts), 1
    given, rest = [], list[memoryview]()
    for names, count in facts.given:
        pickled = parts[at : at + count]
        try:
            with handled(signal.default_int_handler):  # else Ctrl-C would go to the call, which is over
                try:
                    arrival.values |= pickling.load(pickled, pickling.GuardedUnpickler)
                except KeyboardInterrupt:  # the next one is meant for what is made: it may hang
                    arrival.values |= pickling.load(pickled, pickling.GuardedUnpickler)
        except (Exception, KeyboardInterrupt) as error:  # a module that is not here; an object's own __setstate__
            arrival.lost |= dict.fromkeys(names, str(error) or type(error).__name__)
            given.append((names, count))
            rest += pickled
        at += count
    arrival.rest = (memoryview(pickle.dumps(replace(facts, given=tuple(given)))), *rest)
    return arrival
