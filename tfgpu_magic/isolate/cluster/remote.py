"""An isolated call as a Dask worker runs it: in a process of its own on the worker's machine; see `backend`.

The call has the environment, working directory and modules of the Dask worker, and the caller's policy. The Dask worker
unpickles no value of it, and so imports nothing for it. How the caller receives its result is in `backend`.

Dask runs the tasks of a lost worker again on another one, which cannot be prevented. So a call first sets an event at
the scheduler, and a call that finds it set does not begin. The worker itself can see whether a caller still wants its
call: the scheduler takes back the task when the caller cancels it, disconnects or dies.
Source: `distributed`'s "Worker State Machine" (a task that is taken back while it runs is ``cancelled``).
"""

from __future__ import annotations

import pickle
import socket
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from tfgpu_magic.errors import Refused
from tfgpu_magic.isolate import run as running
from tfgpu_magic.isolate.call import Call
from tfgpu_magic.isolate.cluster import message
from tfgpu_magic.isolate.cluster.message import CallRequest
from tfgpu_magic.isolate.lease import Abandoned
from tfgpu_magic.isolate.leases import LEASES
from tfgpu_magic.isolate.pool import FORK_SERVER
from tfgpu_magic.isolate.sinks import Sink
from tfgpu_magic.isolate.values import failure

SEND_EVERY = 0.1
"""Seconds between two messages with a call's output, and between two checks whether it is still wanted."""

TEXT_MAX = 16 * 2**10
"""Characters in one message, at most: a scheduler keeps the last 1000 messages."""

BUFFER_MAX = 2**20
"""Characters that wait to be sent, at most; of more, the oldest are left out."""

_WANTED = ("executing", "long-running")  # the states of a task that runs and has not been taken back


class _BegunBefore(Exception):
    """The call has already begun on another worker."""


def dask_setup(_worker: Any) -> None:
    """Warm the fork server when the worker starts: ``dask worker … --preload tfgpu_magic.isolate.cluster.remote``."""
    FORK_SERVER.process()


def run(request: bytes, work: Sequence[Any]) -> list[Any]:
    """Run a call to its end, in a thread of a Dask worker; its outcome is returned, and nothing is raised.

    Returns:
        How it ended, the machine's name, and the parts of its result; see `message`.
    """
    import distributed

    received: CallRequest = pickle.loads(request)  # noqa: S301  # from a caller that may have this worker run anything
    worker = distributed.get_worker()
    place = f"{socket.gethostname()} (Dask worker {worker.name})"
    guard = distributed.Event(received.guard)
    with _Watch(worker, received) as watch:

        def begin(call: Call) -> None:
            if guard.is_set():
                raise _BegunBefore
            guard.set()
            watch.begin(call, place)

        try:
            call = Call(work=tuple(map(message.unpacked, work)), timeout=received.options.timeout, sink=watch)
            lease = running.leased(received.options, lambda: watch.wanted)
            answer = running.run(call, lease, running.function(), imported=received.imported, begun=begin)
        except (_BegunBefore, Abandoned):
            return [message.LOST, place]
        except Refused as error:
            if error.crowded:
                return [message.FULL, place, worker.address, *_raised(error)]
            return [message.RAISED, place, *_raised(error)]
        except BaseException as error:  # also KeyboardInterrupt: it is of the call, and not of the worker
            return [message.RAISED, place, *_raised(error)]
        finally:
            if not watch.wanted:  # its caller may have been killed; the scheduler has already forgotten the task
                guard.clear()
    late = answer.error() if answer.late is not None else None
    if late is not None:
        return [message.RAISED, place, *_raised(late)]
    if answer.failed:
        return [message.RAISED, place, *map(message.packed, answer.failure)]
    return [message.ANSWERED, place, *map(message.packed, answer.values)]


class _Watch(Sink):
    """The sink of a call: it sends the output to the caller, and stops the call once the caller has given it up."""

    def __init__(self, worker: Any, request: CallRequest) -> None:
        self._worker, self._request = worker, request
        self._lock = threading.Lock()
        self._waiting: deque[tuple[str, str]] = deque()
        self._buffered = self._left_out = 0
        self._call: Call | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfgpu_magic-watch", daemon=True)
        self.wanted = True

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._call = None  # it refers to this object: its values would stay until the next garbage collection
        while self._send():
            pass

    def begin(self, call: Call, place: str) -> None:
        """Store the call that begins, and report that to its caller."""
        self._call = call
        self._worker.log_event(self._request.topic, {"call": self._request.key, "place": place})
        if not self.wanted:
            raise Abandoned

    def write(self, stream: str, text: str) -> None:
        """Keep output until it is sent; when there is too much of it, leave out the oldest."""
        with self._lock:
            for start in range(0, len(text), TEXT_MAX):
                self._waiting.append((stream, text[start : start + TEXT_MAX]))
            self._buffered += len(text)
            while self._buffered > BUFFER_MAX:
                left_out = len(self._waiting.popleft()[1])
                self._buffered -= left_out
                self._left_out += left_out

    def show(self, message: Mapping[str, Any]) -> None:
        """Write a display as text, because there is no notebook here."""
        if "data" in message:
            self.write("stdout", str(message["data"].get("text/plain", "")) + "\n")

    def _run(self) -> None:
        while not self._ended.wait(SEND_EVERY):
            self._send()
            task = self._worker.state.tasks.get(self._request.key)
            if self.wanted and (task is None or task.state not in _WANTED):
                self.wanted = False
                LEASES.stir()
                if self._call is not None:
                    self._call.interrupt()

    def _send(self) -> bool:
        """Send one message of the output that waits; tell whether there was any."""
        with self._lock:
            if not self._waiting:
                return False
            stream, text = self._waiting.popleft()
            while self._waiting and self._waiting[0][0] == stream and len(text) + len(self._waiting[0][1]) <= TEXT_MAX:
                text += self._waiting.popleft()[1]
            self._buffered -= len(text)
            left_out, self._left_out = self._left_out, 0
        if left_out:
            text = f"\n[{left_out} characters that it printed were left out: it prints faster than they travel]\n{text}"
        self._worker.log_event(self._request.topic, {"call": self._request.key, "stream": stream, "text": text})
        return True


def _raised(error: BaseException) -> list[Any]:
    captured, pickled = failure.capture(error)
    return [pickle.dumps(captured), *map(message.packed, pickled.parts)]
