"""Finds the threads of this process that cannot be blocked, and signals' handlers.

A thread that runs code of the user's cannot be blocked (`isolate.user_code`). One of the kernel's, of a library that
never uses a GPU, or of a pool that has nothing to do, needs not be: what it is given to do comes through the gate. One
of ours that has waited for an isolated call waits for the state, too, before it runs what is the user's.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from tfgpu_magic.isolate import user_code
from tfgpu_magic.isolate.user_code import HARMLESS, frames, module_of
from tfgpu_magic.parking.inside.event_loop import root_of
from tfgpu_magic.parking.inside.gate import Caller, NotBack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgpu_magic.parking.inside.gate import Gate

_ITIMERS = {
    "signal.ITIMER_REAL": signal.ITIMER_REAL,
    "signal.ITIMER_VIRTUAL": signal.ITIMER_VIRTUAL,
    "signal.ITIMER_PROF": signal.ITIMER_PROF,
}
"""Timers whose signals have a handler of the user's run in the main thread, whatever that does then."""

_HANDLE_NO_GPU = frozenset({"torch"})
"""More packages whose handlers of signals call no CUDA: PyTorch's looks whether a process that loads data has died."""

_RUNS_CODE = frozenset({("run_code", "IPython.core.interactiveshell")})
"""Functions that run a cell's code, and their modules."""

_RUNS_CELL = _RUNS_CODE | {
    ("_run_cell", "IPython.core.interactiveshell"),
    ("run_cell_async", "IPython.core.interactiveshell"),
    ("dispatch_shell", "ipykernel.kernelbase"),
}
"""The same, and those that are about to, or do what another message asks for."""


def block(gate: Gate) -> Iterator[str]:
    """Give the names of the threads that cannot be blocked, and of what signals set off."""
    gate.replace(user_code, "wait", partial(_wait, gate))
    yield from (name for name, kind in _ITIMERS.items() if signal.getitimer(kind)[0])
    yield from (f"handler of {name}" for name in _handled())
    timers = {one.name for one in threading.enumerate() if isinstance(one, threading.Timer)}
    yield from timers - {"tfgpu_magic-idle-release"} | {*user_code.others()}


def cell_runs() -> bool:
    """Tell whether a thread runs a cell now, however deep: some let an event loop run within it.

    The cell of this thread has ended when its code has. Another one's, or a widget's callback, may begin at any time.
    """
    ours = threading.get_ident()
    return any(
        (one.f_code.co_name, module_of(one)) in (_RUNS_CODE if ident == ours else _RUNS_CELL)
        for ident, frame in sys._current_frames().items()
        for one in frames(frame)
    )


def _handled() -> Iterator[str]:
    """Give the signals at which Python runs a handler of the user's in the main thread, but for Ctrl-C's."""
    for number in signal.valid_signals() - {signal.SIGINT}:
        handler = signal.getsignal(number)
        root = root_of(handler)
        if callable(handler) and root not in HARMLESS | _HANDLE_NO_GPU and root not in sys.stdlib_module_names:
            yield getattr(number, "name", f"signal {number}")


def _wait(gate: Gate) -> None:
    """Wait on this thread until the state is back."""
    while gate.closed:
        try:
            gate.come(Caller.MESSAGE)
        except NotBack:
            time.sleep(1.0)
