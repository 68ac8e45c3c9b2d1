"""A call that was sent to a cluster and has not come home, and what it raised there."""

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
    """A call that has not come home.

    Attributes:
        request: what its worker is told.
        work: its values.
        future: what its caller has.
        task: what Dask has; None while it waits here.
        workers: the addresses of the workers that may have it; None is all.
        place: the machine on which it has begun.
        full: when workers had no room for it last, by their addresses.
        since: when that was so last.
        rested: seconds in all in which no worker had any.
        refusal: what the last of them said.
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
    """What a call raised, which says where."""
    error = Answer(failure=tuple(map(message.unpacked, parts))).error()
    assert error is not None  # noqa: S101  # it failed
    if isinstance(error, TfGpuError):
        error.place = place
    elif error.__cause__ is not None:  # its traceback there
        error.__cause__.args = (f"{str(error.__cause__).strip()}\nThis was on {place}.\n",)
    return error
