"""A caller's connection to a Dask cluster: tasks go there, and what workers tell of them is heard.

What tasks are and what becomes of them is not known here. `distributed` is imported when a cluster is asked for.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tfgpu_magic.errors import Refused
from tfgpu_magic.isolate.cluster import arrival, message
from tfgpu_magic.isolate.cluster.message import CallRequest
from tfgpu_magic.isolate.values.pickling import Pickled

CONNECT = 10.0
"""Seconds in which a scheduler must answer."""

Hear = Callable[[Mapping[str, Any]], None]
"""Is given what a worker tells of a task, in Dask's own thread: it must not wait."""

_LARGE = "distributed.admin.large-graph-warning-threshold"
_LOCK = threading.Lock()


@dataclass(slots=True, eq=False)
class _Table:
    """Who hears what is told of each task; a client has one, whoever uses it.

    Attributes:
        tasks: who hears, by the task's key.
        links: how many use it.
    """

    tasks: dict[str, Hear] = field(default_factory=dict)
    links: int = 0

    def hear(self, event: tuple[float, Any]) -> None:
        """Pass a message on; the scheduler itself tells a client things in the same place."""
        message = event[1]
        if isinstance(message, Mapping) and message.get("call") in self.tasks:
            self.tasks[message["call"]](message)


_TABLES: weakref.WeakKeyDictionary[Any, _Table] = weakref.WeakKeyDictionary()


class Link:
    """A connection to a cluster.

    Args:
        cluster: the scheduler's address, a cluster object of Dask's, or a `distributed.Client`, which stays open.
        security: a `distributed.Security` for the connection; a client has its own.

    Raises:
        Refused: `distributed` is not installed, no scheduler answers, or the client is one for coroutines.

    Attributes:
        address: the scheduler's.
        topic: where workers tell what is for us.
    """

    def __init__(self, cluster: Any, security: Any = None) -> None:
        self._client, self._own = _connect(cluster, security)
        self.address = str(self._client.scheduler.address)
        # The client's own name, because what is told there the scheduler forgets when the client has left.
        self.topic = str(self._client.id)
        with _LOCK:
            self._table = _TABLES.setdefault(self._client, _Table())
            self._table.links += 1
            if self._table.links == 1:
                self._client.subscribe_topic(self.topic, self._table.hear)

    def send(
        self, request: CallRequest, work: Pickled, gpus: int, hear: Hear, workers: Sequence[str] | None = None
    ) -> Any:
        """Have a call run, once, by a worker with as many GPUs; its task is returned, and its messages are heard.

        Args:
            request: what the worker is told of it.
            work: its values.
            gpus: how many of the resource ``GPU`` it takes.
            hear: is given what the worker tells.
            workers: the addresses of those that may have it; None is all.
        """
        import dask

        self._table.tasks[request.key] = hear
        with _LOCK, dask.config.set({_LARGE: sys.maxsize}):  # what Dask advises then is for its own tasks
            return self._client.submit(
                *task(pickle.dumps(request), work.parts),
                key=request.key,
                workers=workers,
                fifo_timeout=0,  # Dask would take those of one moment for one task, and run them in any order
                resources={message.GPU: gpus} if gpus else None,
                retries=0,
                pure=False,
            )

    def forget(self, key: str, task: Any) -> None:
        """Let go of a task; where it still runs, its worker sees that."""
        self._table.tasks.pop(key, None)
        with contextlib.suppress(Exception):  # of a scheduler that is gone
            task.release() if task.done() else task.cancel()

    def clear(self, keys: Iterable[str]) -> None:
        """Have the scheduler forget that these calls had begun; their tasks must be forgotten before."""
        import distributed

        with contextlib.suppress(Exception):  # as above
            for key in keys:
                distributed.Event(key, client=self._client).clear()

    def gpus(self) -> dict[str, float] | None:
        """How many GPUs each worker was started with, by its address; None where the scheduler cannot be asked."""
        if self.is_lost():
            return None
        try:
            workers = self._client.scheduler_info()["workers"]
        except Exception:  # it is lost just now
            return None
        return {address: float(worker.get("resources", {}).get(message.GPU, 0)) for address, worker in workers.items()}

    def is_lost(self) -> bool:
        """Tell whether there is no connection now."""
        return str(self._client.status) != "running"

    def close(self) -> None:
        """Leave the cluster, and end the connection unless it was given to us."""
        with _LOCK, contextlib.suppress(Exception):  # as above
            self._table.links -= 1
            if not self._table.links:
                self._client.unsubscribe_topic(self.topic)  # else the scheduler would tell it of its own end
        if self._own:
            self._client.close()


def task(request: bytes, work: Sequence[memoryview]) -> tuple[Any, ...]:
    """What Dask is to call, and with what: a function of Python's own, which runs text. No code of ours is sent."""
    source = Path(arrival.__file__).read_text()
    return (
        eval,
        _RUN,
        {"source": source, "call": [message.versions(), request, [message.packed(part) for part in work]]},
    )


_RUN = "(lambda space: (exec(source, space), space['run'](*call))[1])({'__name__': 'tfgpu_magic.arrival'})"


def _connect(cluster: Any, security: Any) -> tuple[Any, bool]:
    try:
        import distributed
    except ImportError as error:
        raise Refused(
            f"Calls on a cluster need dask.distributed ({error}). Install it with: pip install 'tfgpu-magic[dask]'"
        ) from error
    if isinstance(cluster, distributed.Client):
        if cluster.asynchronous:
            raise Refused("This Dask client is for coroutines. Give cluster= one that was made without asynchronous=.")
        return cluster, False
    connect = partial(
        distributed.Client, cluster, timeout=CONNECT, set_as_default=False, name="tfgpu_magic", security=security
    )
    try:
        try:
            return connect(), True
        except AssertionError:  # Dask gives its event loop ten seconds to start, which a busy machine may not have
            return connect(), True
    except Exception as error:  # an address that is none, a name that cannot be resolved, a scheduler that is silent
        raise Refused(
            f"No Dask scheduler answers at {cluster} within {CONNECT:g} s ({error or type(error).__name__}). "
            "Start one with `dask scheduler`, which says its address."
        ) from error
