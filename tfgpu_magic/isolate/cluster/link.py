"""A caller's connection to a Dask cluster: it sends tasks, and receives the messages of workers about them.

What tasks and messages mean is left to `backend`. `distributed` is imported when the first connection is made.
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

MessageHandler = Callable[[Mapping[str, Any]], None]
"""Receives the messages of a worker about a task, in Dask's own thread: it must not wait."""

_LARGE = "distributed.admin.large-graph-warning-threshold"
_LOCK = threading.Lock()


@dataclass(slots=True, eq=False)
class _Table:
    """The message handlers of the tasks of one Dask client, which several links may share.

    Attributes:
        tasks: the handlers, by the keys of the tasks.
        links: how many links use the client.
    """

    tasks: dict[str, MessageHandler] = field(default_factory=dict)
    links: int = 0

    def handle(self, event: tuple[float, Any]) -> None:
        """Pass a message on; the scheduler itself also sends events to this topic, which are ignored."""
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
        address: the scheduler's address.
        topic: the Dask topic that workers send their messages to.
    """

    def __init__(self, cluster: Any, security: Any = None) -> None:
        self._client, self._owns_client = _connect(cluster, security)
        self.address = str(self._client.scheduler.address)
        # The client's own name, because the scheduler drops the messages of that topic when the client has left.
        self.topic = str(self._client.id)
        with _LOCK:
            self._table = _TABLES.setdefault(self._client, _Table())
            self._table.links += 1
            if self._table.links == 1:
                self._client.subscribe_topic(self.topic, self._table.handle)

    def send(
        self,
        request: CallRequest,
        work: Pickled,
        gpus: int,
        handler: MessageHandler,
        workers: Sequence[str] | None = None,
    ) -> Any:
        """Have a call run, once, by a worker with that many GPUs; return its Dask task.

        Args:
            request: the request for the worker.
            work: the values of the call.
            gpus: how many of the resource ``GPU`` it takes.
            handler: receives the messages of the worker.
            workers: the addresses of the workers that may run it; None means all.
        """
        import dask

        self._table.tasks[request.key] = handler
        with _LOCK, dask.config.set({_LARGE: sys.maxsize}):  # Dask's advice on large tasks does not apply to these
            return self._client.submit(
                *task(pickle.dumps(request), work.parts),
                key=request.key,
                workers=workers,
                fifo_timeout=0,  # else Dask would group tasks of one moment, and run them in any order
                resources={message.GPU: gpus} if gpus else None,
                retries=0,
                pure=False,
            )

    def forget(self, key: str, task: Any) -> None:
        """Release a task; its worker sees that, if the task still runs."""
        self._table.tasks.pop(key, None)
        with contextlib.suppress(Exception):  # the scheduler may have ended
            task.release() if task.done() else task.cancel()

    def clear(self, keys: Iterable[str]) -> None:
        """Have the scheduler forget that these calls had begun; their tasks must have been released before."""
        import distributed

        with contextlib.suppress(Exception):  # as above
            for key in keys:
                distributed.Event(key, client=self._client).clear()

    def gpus(self) -> dict[str, float] | None:
        """Return how many GPUs each worker was started with, by its address; None if the scheduler is lost."""
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
        """Leave the cluster, and close the connection unless the caller passed its own client."""
        with _LOCK, contextlib.suppress(Exception):  # as above
            self._table.links -= 1
            if not self._table.links:
                self._client.unsubscribe_topic(self.topic)  # else the scheduler would send an event about its own end
        if self._owns_client:
            self._client.close()


def task(request: bytes, work: Sequence[memoryview]) -> tuple[Any, ...]:
    """Return the function and arguments for Dask to call: `eval` runs text, so that no bytecode of ours is sent."""
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
            f"Calls on a cluster need dask.distributed ({error}). Install it with: pip install 'tfgpu-magic[dask]'",
            verdict="",
        ) from error
    if isinstance(cluster, distributed.Client):
        if cluster.asynchronous:
            raise Refused(
                "This Dask client is for coroutines. Give cluster= one that was made without asynchronous=.", verdict=""
            )
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
            f"No Dask scheduler answers at {cluster} within {CONNECT:g} s ({str(error) or type(error).__name__}). "
            "Start one with `dask scheduler`, which says its address.",
            verdict="",
        ) from error
