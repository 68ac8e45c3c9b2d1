"""What came of an isolated call that answered: its value or its error, made again in this process when it is wanted."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from tfgpu_magic.errors import TimedOut, Unpicklable
from tfgpu_magic.isolate.process.order import Facts
from tfgpu_magic.isolate.values import failure, pickling
from tfgpu_magic.isolate.values.failure import Failure
from tfgpu_magic.isolate.values.guard import Unpickler


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a call that answered.

    Attributes:
        failed: whether it raised.
        facts: what its process knew at its end.
        parts: what it gave, pickled.
        seconds: how long it took.
        late: the seconds that it might have taken, where it took longer and was asked to end.
    """

    failed: bool
    facts: Facts
    parts: tuple[memoryview, ...]
    seconds: float
    late: float | None = None

    def error(self) -> BaseException | None:
        """What it raised, as its own type; `TimedOut` where it was late."""
        raised: BaseException | None = None
        if self.failed:
            told: Failure = pickle.loads(self.parts[0])  # noqa: S301  # from our own process
            raised = failure.revive(told, self.parts[1:])
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
            return pickling.load(self.parts, Unpickler)
        except Unpicklable:
            raise
        except Exception as error:  # a module that only the call has; whatever an object's own __setstate__ raises
            raise Unpicklable(f"What the call returned cannot be made again here ({error}).") from error


def timed_out(seconds: float) -> TimedOut:
    """The error of a call that took longer than so many seconds."""
    return TimedOut(f"The call took longer than {seconds:g} s, and was ended.")
