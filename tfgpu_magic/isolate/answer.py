"""What came of an isolated call that answered: its value or its error, made again in this process when it is wanted."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any

from tfgpu_magic.errors import TimedOut, Unpicklable
from tfgpu_magic.isolate.process.order import Facts
from tfgpu_magic.isolate.values import failure, pickling
from tfgpu_magic.isolate.values.failure import Failure
from tfgpu_magic.isolate.values.guard import Unpickler


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a call that answered.

    Attributes:
        values: the parts of what it gave; none where it gave nothing.
        failure: the parts of what it raised; none where it raised nothing.
        facts: what its process knew at its end.
        seconds: how long it took.
        late: the seconds that it might have taken, where it took longer and was asked to end.
    """

    values: tuple[memoryview, ...] = ()
    failure: tuple[memoryview, ...] = ()
    facts: Facts = field(default_factory=Facts)
    seconds: float = 0.0
    late: float | None = None

    @property
    def failed(self) -> bool:
        """Whether it raised."""
        return bool(self.failure)

    @property
    def shown(self) -> tuple[str, ...]:
        """What it raised as IPython showed it there, a line each; none where no IPython ran."""
        return self._told().shown if self.failed else ()

    def error(self) -> BaseException | None:
        """What it raised, as its own type; `TimedOut` where it was late."""
        raised = failure.revive(self._told(), self.failure[1:]) if self.failed else None
        if self.late is None:
            return raised
        late = timed_out(self.late)
        late.__cause__ = raised
        return late

    def value(self) -> Any:
        """What it returned.

        Raises:
            BaseException: what it raised.
            Unpicklable: what it returned can be made there, and not here.
        """
        error = self.error()
        if error is not None:
            raise error
        try:
            return pickling.load(self.values, Unpickler)
        except Unpicklable:
            raise
        except Exception as error:  # a module that only the call has; whatever an object's own __setstate__ raises
            raise Unpicklable(f"What the call returned cannot be made again here ({error}).") from error

    def _told(self) -> Failure:
        told: Failure = pickle.loads(self.failure[0])  # noqa: S301  # from our own process
        return told


def timed_out(seconds: float) -> TimedOut:
    """The error of a call that took longer than so many seconds."""
    return TimedOut(f"The call took longer than {seconds:g} s, and was ended.", seconds=seconds)
