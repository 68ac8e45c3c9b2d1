"""A call that was sent to a cluster and has not ended, and the exception that it raised there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tfgpu_magic.errors import TfGpuError
from tfgpu_magic.isolate.answer import Answer
from tfgpu_magic.isolate.cluster import message
from tfgpu_magic.isolate.cluster.message import CallRequest
from tfgpu_magic.isolate.future import CallFuture
from tfgpu_magic.isolate.values.pickling import Pickled


@dataclass(slots=True, eq=False)
class Sent:
    """A call that was sent to a cluster and has not ended.

    Attributes:
        request: the request for its worker.
        work: its pickled values.
        future: its caller's future.
        task: its Dask task; None while the call waits here.
        workers: the addresses of the workers that may run it; None means all.
        place: the machine on which it has begun; None if it has not.
        full: the last time at which each worker had no room for it, by address.
        since: the last time at which any worker had no room for it.
        rested: the seconds for which it has waited, in all, because no worker had room.
        refusal: the exception of the last such worker.
    """

    request: CallRequest
    work: Pickled
    future: CallFuture[Any]
    task: Any = None
    workers: Sequence[str] | None = None
    place: str | None = None
    full: dict[str, float] = field(default_factory=dict)
    since: float = 0.0
    rested: float = 0.0
    refusal: BaseException | None = None


def raised(place: str, parts: Sequence[Any]) -> BaseException:
    """Return the exception that a call raised, with the place in its message."""
    error = Answer(failure=tuple(map(message.unpacked, parts))).error()
    assert error is not None  # noqa: S101  # it failed
    if isinstance(error, TfGpuError):
        error.place = place
    elif error.__cause__ is not None:  # the traceback of the worker process
        error.__cause__.args = (f"{str(error.__cause__).strip()}\nThis was on {place}.\n",)
    return error
