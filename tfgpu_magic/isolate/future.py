"""The future of a submitted call, which can also be stopped, and is listed among the jobs by `job_list`."""

from __future__ import annotations

from typing import TypeVar

from tfgpu_magic.isolate import sinks
from tfgpu_magic.isolate.call import Call
from tfgpu_magic.isolate.job_list import JobFuture
from tfgpu_magic.isolate.lease import Abandoned
from tfgpu_magic.isolate.leases import LEASES
from tfgpu_magic.isolate.values.pickling import Pickled

T = TypeVar("T")


class CallFuture(JobFuture[T]):
    """The future of an isolated call.

    Attributes:
        work: its pickled values, as they were when it was submitted; None once it has begun.
        sink: where its output goes: to the cell that submitted it.
        stopped: whether it has been stopped.
    """

    def __init__(self, title: str) -> None:
        super().__init__(title)
        self.work: Pickled | None = None
        self.sink = sinks.submitted()
        self.stopped = False
        self._call: Call | None = None

    @property
    def pid(self) -> int | None:
        """The id of its process; None if it has none."""
        return None if self._call is None else self._call.pid

    @property
    def waits(self) -> bool:
        """Whether it waits for a GPU."""
        return self._call is None

    def stop(self, *, kill: bool = False) -> None:
        """Cancel it if it has not begun; else interrupt it, as Ctrl-C does. Its future then raises `WorkerDied`.

        If it has not ended after 5 seconds, a line says so, and the next `stop` kills it.

        Args:
            kill: whether it is killed at once.
        """
        if self.cancel():
            return
        self.stopped = True
        if self._call is not None:  # else it is stopped when it begins
            (self._call.kill if kill else self._call.interrupt)()
        LEASES.stir()

    def take(self) -> Pickled:
        """Return its values, and keep none: they are large, and not needed when they have been sent."""
        work, self.work = self.work, None
        assert work is not None  # noqa: S101  # it runs once
        return work

    def begin(self, call: Call) -> None:
        """Keep the call that is about to run, for its pid and for interrupts.

        Raises:
            Abandoned: it has been stopped meanwhile.
        """
        self._call = call
        if self.stopped:
            raise Abandoned
