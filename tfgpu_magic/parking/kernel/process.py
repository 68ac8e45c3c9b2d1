"""This process, a notebook's kernel or a session in a terminal: when its gate closes, and who has it opened.

The gate closes before arrays are moved, which needs that no cell and nothing else of the user's runs. From then on
whatever comes first has them moved back before it runs.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from functools import partial
from typing import Any

from tfgpu_magic.engine.room import ProgressDisplay
from tfgpu_magic.ground.message import Line, Message, msg
from tfgpu_magic.ground.process_kind import noun
from tfgpu_magic.parking import host_memory
from tfgpu_magic.parking.arrays import MovedArrays, Show
from tfgpu_magic.parking.frameworks import message_of
from tfgpu_magic.parking.kernel import ipython, running_code
from tfgpu_magic.parking.kernel.gate import (
    Blocker,
    Gate,
    StillParked,
    block_exit,
    end_without_exit_functions,
)

CALL_OFF_TIMEOUT = 10.0  # seconds in which an attempt that was called off should end

LONG = 1.0
"""Seconds from which on the time of a return is shown below its cell."""

OFFER = msg(
    "To save what is in host memory instead, run `{line}`, alone in a cell.", line=Line("unpark --without-gpu NAME")
)

_POLL = 0.2  # seconds between two looks how a return gets on


class Attempt:
    """A move of the state, on a thread of its own, for which several may wait; who interrupts it does so for all.

    Attributes:
        out: whether it moves the state away.
        wanted: whether it was not called off.
    """

    def __init__(self, move: Callable[[Callable[[], bool], Show], None], *, out: bool) -> None:
        self._move, self.out = move, out
        self.wanted = True
        self._progress: Message | None = None
        self._trouble = futures.Future[Message | None]()
        threading.Thread(target=self._work, name="tfgpu_magic-park", daemon=True).start()

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._trouble.done()

    def wait(self, show: Callable[[Message | None], object] = bool) -> Message | None:
        """Wait for its end, have the progress shown, and return what went wrong, if anything did."""
        try:
            while True:
                try:
                    return self._trouble.result(_POLL)
                except futures.TimeoutError:
                    with contextlib.suppress(Exception):  # whatever is wrong with the output, the move goes on
                        show(self._progress)
        except KeyboardInterrupt:
            self.call_off()
            raise

    def call_off(self, timeout: float | None = CALL_OFF_TIMEOUT) -> None:
        """End it for all who wait, and wait at most so many seconds until it has ended; None waits until then."""
        self.wanted = False
        futures.wait([self._trouble], timeout)

    def _work(self) -> None:
        trouble = None
        try:
            self._move(lambda: self.wanted, partial(setattr, self, "_progress"))
        except Exception as error:  # those who wait must hear of it
            trouble = message_of(error)
        self._trouble.set_result(trouble)
        host_memory.trim()  # while whoever has waited goes on


class GatedProcess:
    """This process, with its gate and what moves its GPU state.

    Attributes:
        back_at: when the last way back ended, by the monotonic clock.
        without: whether it goes on without what was moved away.
    """

    def __init__(self, shell: Any, arrays: MovedArrays) -> None:
        cells = partial(ipython.block_cells, shell, self._go_without)
        blockers: list[Blocker] = [cells, partial(running_code.block, shell), partial(block_exit, shell)]
        if hasattr(shell, "kernel"):
            blockers.append(partial(ipython.block_messages, shell.kernel))
        self._shell, self._arrays = shell, arrays
        self._gate = Gate(self._come, blockers)
        self._turn = threading.RLock()  # held while an attempt begins or ends
        self._attempt: Attempt | None = None
        self.back_at = float("-inf")
        self.without = False

    @property
    def parked(self) -> bool:
        """Whether its GPU state is away, or on its way."""
        return self._gate.closed

    def park(self, show: Callable[[Message | None], object] = bool) -> Sequence[Message]:
        """Park this process, and return why it is not parked, if it is not. No cell may run.

        An interrupt has everything moved back, and so has user code on another thread.

        Args:
            show: takes messages on the progress, if there is any.
        """
        with uninterrupted() as interrupts:
            against, leaves = self.begin_to_park(lambda: not interrupts)
            trouble = leaves.wait(show) if leaves else None
            return against if trouble is None else [trouble]

    def begin_to_park(self, wanted: Callable[[], bool] = lambda: True) -> tuple[Sequence[Message], Attempt | None]:
        """Close the gate, and begin to move the state away. No cell may run, and a signal may not interrupt this.

        User code that comes meanwhile has everything moved back.

        Args:
            wanted: returns whether that is still wanted.

        Returns:
            Why it cannot be parked, and what moves the state, if it has begun.
        """
        with self._turn:
            if self._gate.closed:
                return (), None
            if self.without:
                return (goes_without(),), None
            try:
                names = self._gate.close()  # before: a cell may begin on another thread until then
                against = tuple(_against(names, busy=running_code.cell_runs(self._shell)))
                if not against:
                    self._attempt = Attempt(partial(self._move_out, wanted), out=True)
                    return (), self._attempt
            except Exception as error:
                against = (message_of(error),)
            self._open_if_back()
            return against, None

    def against(self) -> Sequence[Message]:
        """Return what speaks against parking in what runs beside this cell."""
        with self._turn:
            names = self._gate.close()
            self._gate.open()
        return tuple(_against(names, busy=False))

    def _open_if_back(self) -> None:
        if not self._arrays.any_moved():
            self._gate.open()

    def _come(self, *, in_cell: bool = False) -> None:
        """Bring everything back before user code runs, in any thread, or raise `StillParked`."""
        shown = ProgressDisplay(self._shell)
        try:
            with on_interrupt(signal.default_int_handler):  # a kernel may have another one by now
                while attempt := self._joined():
                    trouble = attempt.wait(shown if in_cell else bool)
                    if not attempt.out:
                        break
                else:
                    return
        except KeyboardInterrupt:
            back = msg("back on the GPU meanwhile. Run it again.")
            became = msg("still parked, and nothing is lost. {offer}", offer=OFFER) if self._gate.closed else back
            raise StillParked(msg("Interrupted: this {here} is {became}", here=noun(), became=became)) from None
        if self._gate.closed:
            text = "This {here} is parked, and does not come back. {why} {offer}"
            raise StillParked(msg(text, here=noun(), why=trouble or msg("It was called off."), offer=OFFER))
        if in_cell and not self.without and (seconds := self._arrays.return_seconds or 0) > LONG:
            shown.show_now(msg("All is back on the GPU. It took {seconds} s.", seconds=f"{seconds:.1f}"))

    def _go_without(self, names: Sequence[str]) -> None:
        """Open the gate for a cell that asks for what is in host memory; `StillParked`: all is as before.

        What is away cannot be read any more, so whatever runs gets an error, and no value that is not there. Exit
        functions could still open a good file and then fail, so there are none.
        """
        if unknown := [name for name in names if name not in self._shell.user_ns]:
            raise StillParked(msg("There is no variable `{name}`. Nothing was changed.", name=unknown[0]))
        with self._turn:  # in which one begins
            attempt = self._attempt
        if attempt is not None:  # a return that hangs goes on, and changes nothing of what is in host memory
            attempt.call_off(None if attempt.out else CALL_OFF_TIMEOUT)
        with uninterrupted(), self._turn:
            if not self._gate.closed:  # it came back meanwhile
                return
            if attempt is not self._attempt:
                raise StillParked(msg("This {here} is just coming back. Run it again.", here=noun()))
            try:
                self._arrays.make_unreadable()
            except Exception as error:
                text = "What is away could be read: {error}. It stays parked."
                raise StillParked(msg(text, error=str(error))) from error
            self.without = True
            end_without_exit_functions(self._shell)  # for good
            self._gate.open()

    def _joined(self) -> Attempt | None:
        """Return the attempt to wait for, and call it off if it moves the state away; None if user code may run."""
        with self._turn:
            if not self._gate.closed:
                return None
            attempt = self._attempt
            if attempt is not None and attempt.out and not attempt.ended:
                attempt.call_off(0)
            elif attempt is None or attempt.out or attempt.ended or not attempt.wanted:
                attempt = self._attempt = Attempt(self._move_back, out=False)
            return attempt

    def _move_out(self, still: Callable[[], bool], wanted: Callable[[], bool], show: Show) -> None:
        try:
            self._arrays.move_out(lambda: still() and wanted(), show)
        finally:
            with self._turn:
                self._open_if_back()

    def _move_back(self, wanted: Callable[[], bool], show: Show) -> None:
        try:
            self._arrays.move_back(wanted, show)
        finally:
            with self._turn:
                self.back_at = time.monotonic()
                if self._attempt is None or not self._attempt.out:  # else this one was called off, and ends late
                    self._open_if_back()


def goes_without() -> Message:
    """Return that this process goes on without what was moved away."""
    return msg("This {here} goes on without what was parked. Save that, and restart.", here=noun())


def _against(names: Sequence[str], *, busy: bool) -> Iterator[Message]:
    """Yield the reasons against parking that are in the code that runs."""
    if busy:
        yield msg("A cell is running. A notebook can be parked only between cells.")
    if names:
        running = "These threads, tasks or callbacks may use the GPU while it is parked: {names}. Stop them first."
        yield msg(running, names=", ".join(names))


@contextlib.contextmanager
def on_interrupt(handler: Callable[..., object]) -> Iterator[None]:
    """Make Ctrl-C and Jupyter's interrupt call a function in the block, if that runs on the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


@contextlib.contextmanager
def uninterrupted() -> Iterator[Sequence[int]]:
    """Raise no `KeyboardInterrupt` in a block, which is given the interrupts: nothing is to be left half done."""
    interrupts = list[int]()
    with on_interrupt(lambda number, _: interrupts.append(number)):
        yield interrupts
