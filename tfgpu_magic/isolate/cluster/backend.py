"""Isolated calls on many machines: the backend that runs them as Dask tasks; `remote` is the worker's side.

A cluster is started with Dask's own programs, its GPUs as a resource that calls take::

    dask scheduler
    dask worker tcp://scheduler:8786 --resources "GPU=2"      # on each machine, with the GPUs it has

and used with ``IsolatedExecutor(cluster="tcp://scheduler:8786")``, or ``cluster=`` a `distributed.Client`.
A scheduler without TLS runs whatever a client that reaches its port sends, as the user that started the workers.

A call sends the function, its arguments and its result, pickled here and in the worker process only; the policy, the
number of GPUs and the timeout; output, as it comes; exceptions. It sends neither the environment, the working
directory, the policy that applies here, nor modules: each machine has its own.

One thread handles all events of the calls of an executor, in their order.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tfgpu_magic import units
from tfgpu_magic.errors import TfGpuError, Unpicklable, WorkerDied
from tfgpu_magic.isolate.answer import Answer
from tfgpu_magic.isolate.backend import ENDED, STOPPED, Door
from tfgpu_magic.isolate.cluster import errors, message
from tfgpu_magic.isolate.cluster.link import Link
from tfgpu_magic.isolate.cluster.message import CallRequest
from tfgpu_magic.isolate.cluster.sent import Sent, raised
from tfgpu_magic.isolate.future import CallFuture
from tfgpu_magic.isolate.options import Options

PATIENCE = 20.0
"""Seconds in which a worker with enough GPUs, and room on them, must appear: a Dask nanny needs some to restart one."""

_CHECK_EVERY = 2.0  # seconds between two checks of the cluster's workers


class Cluster:
    """A `Backend` whose calls run in processes of their own on a cluster's machines.

    It differs from what `IsolatedExecutor` documents in this: `max_workers` is how many calls Dask has at once, by
    default all. `gpus` is how many GPUs of one machine a call gets, and how many of the resource ``GPU`` it takes of a
    worker; by default one. A call that Dask has can be cancelled until it begins. A backend that is not shut down ends
    with this process.

    Args:
        options: the options of each call.
        most: how many calls Dask has at once; None means all.
        cluster: as in `Link`.
        security: as in `Link`.
        wait: seconds in which there must be a worker for a call, or such a time as text; by default `PATIENCE`.

    Raises:
        PolicyError: `wait` is not a time.
        Refused: there is no such cluster.
    """

    def __init__(
        self, options: Options, most: int | None, cluster: Any, security: Any, wait: float | str | None
    ) -> None:
        self.door = Door()
        self.most = most
        self._options = options
        self._gpus = 1 if options.gpus is None else options.gpus
        self._patience = PATIENCE if wait is None else units.seconds(wait)
        self._link = Link(cluster, security)
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._queue: deque[Sent] = deque()
        self._resting: list[Sent] = []  # calls that no worker has room for now
        self._out: dict[str, Sent] = {}
        self._ended: list[str] = []  # the events of ended calls, which the scheduler still has
        self._without: float | None = None  # the time since which there has been no worker for the calls
        self._thread = threading.Thread(target=self._work, name="tfgpu_magic-cluster", daemon=True)
        self._thread.start()

    def add(self, call: CallFuture[Any]) -> None:
        """Send a call as soon as there is room for it."""
        sent = Sent(CallRequest.of(call.title, self._options, self._link.topic), call.take(), call)
        call.add_done_callback(partial(self._note, sent))
        call.interrupt = lambda: self._inbox.put(partial(self._stop, sent))
        with self.door.changed:
            self.door.check()
            self._queue.append(sent)
        self._inbox.put(self._go_on)

    def shutdown(self, *, wait: bool, cancel: bool) -> None:
        """Take no more calls; see `Backend.shutdown`."""
        with self.door.changed:
            self.door.closed = True
            calls = [*self._queue, *self._resting, *self._out.values()] if cancel else []
        for call in calls:
            call.future.cancel()
        self._inbox.put(self._go_on)
        if wait and self._thread is not threading.current_thread():
            self._thread.join()

    def end(self, *, kill: bool) -> None:
        """Cancel the calls that wait, and end those that run: from here a process can only be asked to end, once."""
        del kill  # a call that does not end is killed by its worker
        self.shutdown(wait=False, cancel=True)
        self._inbox.put(partial(self._fail_all, lambda _: WorkerDied(ENDED, stopped=True)))

    def _note(self, call: Sent, future: Any) -> None:
        if future.cancelled():
            self._inbox.put(partial(self._drop, call))

    # The methods below run in the thread of the backend.

    def _work(self) -> None:
        """Handle events until all calls have ended."""
        checked = time.monotonic()
        try:
            while not (self.door.closed and not self._queue and not self._resting and not self._out):
                with contextlib.suppress(queue.Empty):
                    self._inbox.get(timeout=_CHECK_EVERY)()
                if time.monotonic() - checked >= _CHECK_EVERY:
                    self._check_workers()
                    checked = time.monotonic()
        finally:
            with self.door.changed:
                self.door.closed = True
                self._resting += self._queue
                self._queue.clear()
            self._fail_all(lambda _: WorkerDied("What waits for the cluster has failed, and left this call alone."))
            self._link.clear(self._ended)
            self._link.close()

    def _go_on(self) -> None:
        """Send the calls that wait to Dask, as far as there is room."""
        while self._queue and (self.most is None or len(self._out) < self.most):
            with self.door.changed:
                call = self._queue.popleft()
            if call.future.cancelled():
                call.future.set_running_or_notify_cancel()
            else:
                self._send(call)

    def _send(self, call: Sent) -> None:
        self._out[call.request.key] = call
        try:
            call.task = self._link.send(
                call.request, call.work, self._gpus, self._later(self._handle_message, call), call.workers
            )
        except Exception as error:  # whatever Dask raises if its client is closed
            self._settle(call, error=self._lost(call, error))
        else:
            call.task.add_done_callback(self._later(self._take, call))

    def _later(self, do: Callable[..., None], call: Sent) -> Callable[[Any], None]:
        """Return a callback that any thread may invoke, to have this done by the backend's thread."""
        key = call.request.key

        def callback(event: Any) -> None:
            # Events of an earlier attempt, which has another key, are dropped.
            self._inbox.put(lambda: do(call, event) if call.request.key == key else None)

        return callback

    def _handle_message(self, call: Sent, message: Mapping[str, Any]) -> None:
        """Take a worker's message: that a call has begun, or what it printed."""
        if "text" in message:
            with contextlib.suppress(Exception):  # a closed stream; the call goes on
                call.future.sink.write(message["stream"], message["text"])
        elif call.place is None and not call.future.done():
            call.place = message["place"]
            if not call.future.set_running_or_notify_cancel():
                self._forget(call)
            else:
                call.future.begun, call.future.title = True, f"{call.request.name}, on {call.place}"
                call.future.enlist()

    def _take(self, call: Sent, task: Any) -> None:
        """Take the outcome of a call from its Dask task."""
        if call.request.key not in self._out:
            return
        try:
            kind, place, *parts = task.result()
            if kind == message.FULL:
                call.refusal = raised(place, parts[1:])
                self._rest(call, parts[0])
                return
        except BaseException as error:  # also CancelledError, which Dask raises where the connection was lost
            self._settle(call, error=self._lost(call, error))
            return
        if kind not in (message.ANSWERED, message.RAISED):
            self._settle(call, error=errors.refusal(kind, place, parts, call.place))
        elif kind == message.RAISED:
            self._settle(call, error=raised(place, parts))
        else:
            try:
                value = Answer(values=tuple(map(message.unpacked, parts))).value()
            except Unpicklable as error:
                self._settle(call, error=error)
            else:
                self._settle(call, value)

    def _settle(self, call: Sent, value: Any = None, *, error: BaseException | None = None) -> None:
        """Settle a call's future, and release its Dask task."""
        self._forget(call)
        if call.place is None and not call.future.set_running_or_notify_cancel():
            return  # it was cancelled before it began
        call.future.forget()
        if error is None:
            call.future.set_result(value)
        else:
            call.future.set_exception(error.with_traceback(None))  # it shows only our own code

    def _stop(self, call: Sent) -> None:
        """End a running call."""
        if call.request.key in self._out:
            self._settle(call, error=WorkerDied(STOPPED, stopped=True))

    def _drop(self, call: Sent) -> None:
        """Remove a call that was cancelled."""
        if call in self._queue:
            self._queue.remove(call)
        elif call in self._resting or call.request.key in self._out:
            self._forget(call)
        else:
            return
        call.future.set_running_or_notify_cancel()  # which notifies the threads that wait for it

    def _fail_all(self, error: Callable[[Sent], BaseException]) -> None:
        for call in [*self._out.values(), *self._resting]:
            self._settle(call, error=error(call))

    def _forget(self, call: Sent) -> None:
        """Release its Dask task; if the call still runs, its worker sees that and ends it."""
        self._out.pop(call.request.key, None)
        if call in self._resting:
            self._resting.remove(call)
        if call.task is not None:
            self._link.forget(call.request.key, call.task)
            self._ended.append(call.request.guard)
        self._inbox.put(self._go_on)

    def _rest(self, call: Sent, address: str) -> None:
        """Have a call tried on another worker, because one has no room for it, or was lost before it began."""
        now = time.monotonic()
        call.full[address] = call.since = now
        del self._out[call.request.key]
        self._link.forget(call.request.key, call.task)
        call.task, call.request = None, call.request.again()
        self._resting.append(call)
        self._wake(self._link.gpus() or {})
        self._inbox.put(self._go_on)

    def _wake(self, gpus: Mapping[str, float]) -> None:
        """Send those calls to Dask again for which there may be room by now."""
        now = time.monotonic()
        fitting = [address for address, count in gpus.items() if count >= self._gpus]
        for call in list(self._resting):
            workers = [address for address in fitting if now - call.full.get(address, 0.0) >= _CHECK_EVERY]
            if workers:
                self._resting.remove(call)
                call.rested, call.workers = call.rested + now - call.since, workers
                self._send(call)
            elif call.rested + now - call.since >= self._patience:
                self._settle(call, error=call.refusal or errors.gone(None))

    def _check_workers(self) -> None:
        """Check whether there are workers for the calls that wait; fail them if there have been none for too long."""
        # Only now has the scheduler surely forgotten the tasks; before, one could have run again.
        ended, self._ended = self._ended, []
        self._link.clear(ended)
        gpus = self._link.gpus() if self._out or self._resting else None
        if gpus is None:
            self._without = None
            return
        for call in list(self._out.values()):
            if call.place is None and call.workers is not None and not gpus.keys() & set(call.workers):
                self._rest(call, call.workers[0])
        self._wake(gpus)
        if any(count >= self._gpus for count in gpus.values()):
            self._without = None
            return
        self._without = self._without or time.monotonic()
        if time.monotonic() - self._without >= self._patience:
            self._fail_all(lambda call: self._no_worker(call, gpus))

    def _no_worker(self, call: Sent, gpus: Mapping[str, float]) -> TfGpuError:
        """Return the error of a call that no worker can run."""
        if call.place is not None:
            return errors.gone(call.place)
        return errors.no_worker(self._gpus, self._patience, gpus, self._link.address)

    def _lost(self, call: Sent, error: BaseException) -> TfGpuError:
        return errors.lost(error, call.place, self._link.address, cut_off=self._link.is_lost())
