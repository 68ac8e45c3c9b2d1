"""Reads the GPUs for all clients of the server, while there are any, and sends each what is new to it."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, cast

from tornado.websocket import WebSocketClosedError

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.ground.rows import Table
from tfgpu_magic.machine.board.history import History
from tfgpu_magic.machine.see import Watch
from tfgpu_magic.server.job_thread import JobThread
from tfgpu_magic.tell import page_json
from tfgpu_magic.tell.fetch import Watcher, failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from logging import Logger

    from tfgpu_magic.ground.rows import Notebook
    from tfgpu_magic.tell.page_json import WireState

BROKEN = "The server cannot show the GPUs: something is wrong in tfgpu_magic. Its log says what."

LOOK_EVERY = 0.25
"""Seconds between two looks at the board for something new."""
FIRST_READING_TIMEOUT = 2.0
"""Seconds to wait for the first reading of a collector that has just been started."""
LOOK_TIMEOUT = 2.0
"""Seconds that a look may take before the last state counts as stale; one takes milliseconds."""

_EARLY = 0.1  # seconds by which a look at the board may be early
_QUIET = 0.5  # seconds after its time when a client gets a message that nothing is new
_AT_ONCE = 16  # clients served before other requests have their turn
_PAUSE = 0.05  # seconds between two looks for the first reading


class Client:
    """One stream, and the state that it has. At most one message is on its way to it.

    Args:
        write: sends a text, and returns a future that is done when the system has taken all of it.
        close: ends the stream.

    Attributes:
        processes: whether it shows processes, and not memory alone.
    """

    def __init__(self, write: Callable[[bytes], asyncio.Future[None]], close: Callable[[], None]) -> None:
        self.close = close
        self.processes = True
        self.has = 0
        self.sent_at = float("-inf")
        self._write = write
        self._sending: asyncio.Future[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a message is still on its way; newer ones then wait."""
        return self._sending is not None and not self._sending.done()

    def send(self, text: bytes) -> None:
        """Send a text. A client that has gone is no error: its stream is then closed."""
        try:
            self._sending = self._write(text)
        except WebSocketClosedError:
            return
        self._sending.add_done_callback(lambda sent: sent.cancelled() or sent.exception())


class States:
    """The newest state and the one before it; the messages to the newest are made once for all clients.

    Attributes:
        sequence: the number of the newest state; 0 before there is one.
        newest: the newest state; empty before there is one.
    """

    def __init__(self) -> None:
        self.sequence = 0
        self.newest: WireState = cast("WireState", {})
        self._before: WireState = self.newest
        self._ticks: dict[int, bytes] = {}

    def add(self, state: WireState) -> None:
        """Make a state the newest, unless the newest is equal."""
        if state != self.newest:
            self._before, self.newest = self.newest, state
            self.sequence += 1
            self._ticks.clear()

    def tick(self, base: int) -> bytes | None:
        """Return the message that brings a client from state `base` to the newest; None where it needs a full one.

        From the newest to itself it has the time alone: nothing is new.
        """
        if base not in self._ticks:
            before = {self.sequence: self.newest, self.sequence - 1: self._before}.get(base)
            if not before:
                return None
            changes = page_json.patch(before, self.newest) or {"time": self.newest["time"]}
            self._ticks[base] = page_json.tick(self.sequence, base, changes).encode()
        return self._ticks[base]


class BoardReader:
    """A reader of the board for the server's clients. Not thread-safe.

    Args:
        log: for what only an administrator can put right.
        every: seconds between two readings that are wanted.

    Attributes:
        settled: whether there is something to show: a living collector's reading, or why there is none.
    """

    def __init__(self, log: Logger, *, every: float = 1.0) -> None:
        self.settled = False
        self._watcher = Watcher(Watch(every=every))
        self._log = log
        self._warned = ""
        self._failure: Table | None = None
        self._time = 0.0

    def read_state(self, notebooks: Mapping[int, Notebook], *, processes: bool = True) -> WireState | None:
        """Return the state; None while it is unchanged. Raise nothing.

        Args:
            notebooks: this server's kernels, by pid.
            processes: whether a client shows processes, as for `Watch.show_processes`.
        """
        try:
            watch = self._watcher.watch
            watch.show_processes(processes=processes)
            table = self._watcher.read_if_changed(notebooks)
            self._failure = None
            if table is None:
                return None
            self._warn(watch.why_not_best)
            self._time = table.time
            self.settled = table.time > 0 and table.stale_since is None
            return page_json.state(table)
        except Exception as error:  # whatever it is: the pages must show it
            return self._failure_state(error)

    def full(self, sequence: int, state: WireState, every: float) -> bytes:
        """Return the full message of a state with the history before it, as `page_json.full`. Raise nothing."""
        try:
            history = self._watcher.watch.history()
        except MonitorError:
            history = History()
        return page_json.full(sequence, state, history, every).encode()

    def close(self) -> None:
        """Close the board."""
        self._watcher.close()

    def _failure_state(self, error: Exception) -> WireState | None:
        """Return what went wrong as a state, and log it; None if the last failure was the same."""
        table = failure(error, BROKEN, self._time)
        self.settled = True
        if table == self._failure:
            return None
        self._failure = table
        ours = None if isinstance(error, MonitorError) else error
        self._log.warning("tfgpu_magic: the GPUs cannot be looked at: %s", table.error, exc_info=ours)
        return page_json.state(table)

    def _warn(self, trouble: str) -> None:
        """Log once what only an administrator can put right."""
        if trouble not in ("", self._warned):
            self._log.warning("tfgpu_magic: %s", trouble)
        self._warned = trouble


class Feed:
    """The states that all clients of one server get.

    Args:
        kernels: returns the server's kernels, by pid.
        log: for what only an administrator can put right.
        every: seconds between two messages that have something new, and between two readings of the GPUs.
    """

    def __init__(
        self,
        kernels: Callable[[], Awaitable[Mapping[int, Notebook]]],
        log: Logger,
        *,
        every: float = 1.0,
    ) -> None:
        self.closed = False
        self._kernels = kernels
        self._log = log
        self._every = every
        self._board_reader, self._worker = BoardReader(log, every=every), JobThread()
        self._looking: asyncio.Future[WireState | None] | None = None
        self._state: WireState | None = None
        self._state_at = float("-inf")
        self._hung = self._complained = False
        self._asking: asyncio.Future[Mapping[int, Notebook]] | None = None
        self._asked_at = float("-inf")
        self._known: Mapping[int, Notebook] = {}
        self._states = States()
        self._full: tuple[int, asyncio.Future[bytes]] | None = None
        self._clients: list[Client] = []
        self._ready = False
        self._running: asyncio.Task[None] | None = None
        self._called = asyncio.Event()

    def join(self, client: Client) -> None:
        """Serve a client from now on; the first one starts the looks. After the end, close the client."""
        if self.closed:
            client.close()
            return
        self._clients.append(client)
        self._called.set()
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_task(self._run())

    def show_processes(self, client: Client, *, processes: bool) -> None:
        """Set whether a client shows processes; one that begins to gets them soon."""
        if processes and not client.processes:
            self._state_at = float("-inf")
            self._called.set()
        client.processes = processes

    def leave(self, client: Client) -> None:
        """Serve a client no longer. Twice is fine."""
        if client in self._clients:
            self._clients.remove(client)

    async def full(self) -> bytes:
        """Return the message that a view begins with; look first where no client keeps the state up to date."""
        if not self._ready:
            await self._wait_for_reading()
        return (await self._newest_full())[1]

    async def kinds(self, pid: int) -> set[str]:
        """Return in which of the driver's lists a process is, on any GPU; look first, as `full` does."""
        if not self._ready:
            await self._wait_for_reading()
        rows = self._states.newest.get("rows", {}).values()
        return {str(row["kind"]) for row in rows if row.get("pid") == pid and "kind" in row}

    def close(self) -> None:
        """End all streams, and close the board."""
        self.closed = True
        for task in (self._running, self._asking):
            if task is not None:
                task.cancel()
        self._dismiss()
        self._worker.close(self._board_reader.close)

    async def _run(self) -> None:
        try:
            await self._wait_for_reading()
            self._ready = True
            await self._step()
        except Exception:
            self._log.exception("tfgpu_magic: the streams end")
            self._dismiss()  # a client that connects again starts it again
        finally:
            self._ready = False

    async def _step(self) -> None:
        while self._clients:
            self._called.clear()
            begun = time.monotonic()
            if begun - self._state_at >= self._every - _EARLY:
                await self._look()
            await self._serve()
            try:
                await asyncio.wait_for(self._called.wait(), max(0.0, begun + LOOK_EVERY - time.monotonic()))
            except asyncio.TimeoutError:
                continue

    def _dismiss(self) -> None:
        clients, self._clients = self._clients, []
        for client in clients:
            client.close()

    async def _wait_for_reading(self) -> None:
        end = time.monotonic() + FIRST_READING_TIMEOUT
        while True:
            await self._look()
            if self._hung or self._board_reader.settled or time.monotonic() > end:
                return
            await asyncio.sleep(_PAUSE)

    async def _look(self) -> None:
        """Look, or wait for the look that another task has begun, as long as looks may take."""
        if self._looking is None:
            kernels = await self.notebooks()
            self._looking = self._looking or self._begin(kernels)
        looking = self._looking
        done, _ = await asyncio.wait({looking}, timeout=0 if self._hung else LOOK_TIMEOUT)
        if not done and not self._hung:
            self._hung = True
            nothing = page_json.state(Table(error="This machine's processes cannot be read."))
            known = self._states.newest if self._states.sequence else nothing
            self._states.add({"stale": round(time.time() - LOOK_TIMEOUT, 3)} | known)

    async def notebooks(self) -> Mapping[int, Notebook]:
        """Return the kernels by pid. Managers can be of any make, and a failing one must not hide the GPUs."""
        asking = self._asking
        if asking is None:
            asking = self._asking = asyncio.ensure_future(self._kernels())
            self._asked_at = time.monotonic()
        # A task that comes meanwhile waits for the same answer; no task waits again for managers that were too slow.
        await asyncio.wait({asking}, timeout=max(0.0, self._asked_at + LOOK_TIMEOUT - time.monotonic()))
        if not asking.done():
            self._complain("they do not answer", None)
            return self._known
        if self._asking is asking:
            self._asking = None
        if asking.cancelled() or (error := asking.exception()):
            self._complain("asking for them fails", None if asking.cancelled() else error)
            return {}
        self._known = asking.result()
        return self._known

    def _complain(self, why: str, error: BaseException | None) -> None:
        if not self._complained:
            self._log.error("tfgpu_magic: kernels are shown without their notebooks: %s", why, exc_info=error)
        self._complained = True

    def _begin(self, kernels: Mapping[int, Notebook]) -> asyncio.Future[WireState | None]:
        processes = not self._clients or any(client.processes for client in self._clients)
        looking = self._worker.do(partial(self._board_reader.read_state, kernels, processes=processes))
        looking.add_done_callback(self._finish_look)
        return looking

    def _finish_look(self, looking: asyncio.Future[WireState | None]) -> None:
        self._looking = None
        if looking.cancelled():
            return
        state = looking.result()
        if state is not None:
            self._state, self._state_at = state, time.monotonic()
        if self._state is not None and (state is not None or self._hung):
            self._states.add(self._state)
        self._hung = False

    async def _serve(self) -> None:
        """Send every client what is new to it, if that is due and the client has taken the message before."""
        for number, client in enumerate(list(self._clients), start=1):
            if not client.is_busy and (text := await self._due(client)) and client in self._clients:
                client.send(text)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _due(self, client: Client) -> bytes | None:
        now, newest = time.monotonic(), self._states.sequence
        if client.has == newest and now - client.sent_at < self._every + _QUIET:
            return None
        client.sent_at = now
        text = self._states.tick(client.has)
        if text is None:
            newest, text = await self._newest_full()
        client.has = newest
        return text

    async def _newest_full(self) -> tuple[int, bytes]:
        """Return the newest state's number and full message, which is made once for all clients."""
        sequence, state = self._states.sequence, self._states.newest
        if self._full is None or self._full[0] != sequence:
            self._full = sequence, self._worker.do(partial(self._board_reader.full, sequence, state, self._every))
        writing = self._full[1]
        done, _ = await asyncio.wait({writing}, timeout=0 if self._hung else LOOK_TIMEOUT)
        if not done:
            return sequence, page_json.full(sequence, state, History(), self._every).encode()
        return sequence, writing.result()
