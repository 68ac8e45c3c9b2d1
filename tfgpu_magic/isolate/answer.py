"""The answer of an isolated call: its value or its error, unpickled in this process only when it is wanted."""

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
    """The answer of a call.

    Attributes:
        values: the parts of the pickle of what it returned; none if it returned nothing.
        failure: the parts of the pickle of what it raised; none if it raised nothing.
        facts: what its process reported at its end.
        seconds: how long it took.
        late: the timeout that it exceeded, in seconds, if it raised then; else None.
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
        """The lines of what it raised, as IPython showed it there; none if no IPython ran."""
        return self._description().shown if self.failed else ()

    def error(self) -> BaseException | None:
        """Return what it raised, as its own type, or as the cause of `TimedOut`; None if it raised nothing."""
        raised = failure.revive(self._description(), self.failure[1:]) if self.failed else None
        if self.late is None:
            return raised
        late = timed_out(self.late)
        late.__cause__ = raised
        return late

    def value(self) -> Any:
        """Return what it returned.

        Raises:
            BaseException: what it raised.
            Unpicklable: what it returned cannot be unpickled in this process; the error's `value` tries it again.
        """
        raised = self.error()
        if raised is not None:
            raise raised
        try:
            return pickling.load(self.values, Unpickler)
        except Unpicklable as error:
            error.value = self.value
            raise
        except Exception as error:  # a module that only the call has; any error of an object's own __setstate__
            refused = Unpicklable(
                f"What the call returned cannot be made again here ({error}). Once it can be, as when its "
                "module can be imported, value() of this error returns it."
            )
            refused.value = self.value
            raise refused from error

    def _description(self) -> Failure:
        description: Failure = pickle.loads(self.failure[0])  # noqa: S301  # from our own process
        return description


def timed_out(seconds: float) -> TimedOut:
    """Return the error of a call that took longer than `seconds`."""
    return TimedOut(f"The call took longer than {seconds:g} s, and was ended.", seconds=seconds)
