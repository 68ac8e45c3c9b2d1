"""The process that starts calls: it imports TensorFlow once, and each call is a fork of it. `keeper` has the other end.

It stays single-threaded as far as it can, wakes no GPU, and ends with its kernel, taking every call along. Its orders
come over one socket; how a call stands goes over a pipe of the call's own: first the pid, then the exit status.
Source: prctl(2) on PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER; pidfd_open(2); `multiprocessing.forkserver`'s pattern.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import selectors
import signal
import socket
import struct
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

PRELOAD = ("tensorflow", "keras", "cloudpickle", "tfgpu_magic.isolate.infant", "tfgpu_magic.isolate.cellshell")
"""What is imported before the first call; what is not installed is left out."""

FIGURE = struct.Struct("=q")
"""How a pid and an exit status are written: a status as `subprocess` has it, negative for a signal."""

ORDER = struct.Struct("=qq")
"""An order: a pid and a signal for its process group; pid 0 is a call to start, with its descriptors."""

READY = b"ready"

_LAST_MOMENTS = 2.0  # seconds in which killed calls are waited for, when the kernel has gone

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


@dataclass(slots=True)
class Nursery:
    """The calls that live, and the way to their kernel.

    Attributes:
        control: where orders come from.
        kernel: the pidfd of the kernel.
        grow_up: what a child runs, given its connection; never returns.
        calls: the pipe of each living call, by its pid.
    """

    control: socket.socket
    kernel: int
    grow_up: Callable[[socket.socket], NoReturn]
    calls: dict[int, int] = field(default_factory=dict)

    def run(self) -> None:
        """Serve until the kernel is gone or wants no more calls."""
        bell, ringer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(ringer)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with selectors.EpollSelector() as selector:
            for source in (self.control, self.kernel, bell):
                selector.register(source, selectors.EVENT_READ)
            here = {bell, ringer, selector.fileno()}
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if bell in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(bell, 4096)
                    self._reap()
                if self.kernel in ready or (self.control.fileno() in ready and not self._obey(here)):
                    break
        self._end_all()

    def _obey(self, mine: set[int]) -> bool:
        """Do what is asked; False when nobody can ask any more."""
        try:
            order, descriptors, _, _ = socket.recv_fds(self.control, ORDER.size, 8, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            return False
        if not order:
            return False
        pid, number = ORDER.unpack(order)
        if descriptors:
            self._start(descriptors, mine)
        elif pid in self.calls:  # it has not been reaped, so the number is its own
            _signal_group(pid, number)
        return True

    def _start(self, descriptors: Sequence[int], mine: set[int]) -> None:
        connection, out, err, told = descriptors
        try:
            pid = os.fork()
        except OSError as error:  # no memory, or no more processes: said instead of a pid
            os.write(told, FIGURE.pack(-(error.errno or 1)))
            pid = -1
        if pid == 0:
            self._begin(connection, out, err, {told, *mine})
        for descriptor in (connection, out, err):
            os.close(descriptor)
        if pid > 0:
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)  # the child does that too: whoever comes first
            self.calls[pid] = told
            with contextlib.suppress(BrokenPipeError):
                os.write(told, FIGURE.pack(pid))
        else:
            os.close(told)

    def _begin(self, connection: int, out: int, err: int, strange: set[int]) -> NoReturn:
        """In the child: become a process of its own, and run the call."""
        status = 1
        try:
            parent = os.getppid()
            # A group of its own: what is done to the call is done to all that it started, and an interrupt of
            # another cell, which goes to the kernel's group, is not for it.
            os.setpgid(0, 0)
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # the nursery has one thread, so it dies when that does
            if os.getppid() != parent:
                os._exit(1)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in {*strange, self.control.detach(), self.kernel, *self.calls.values()}:
                os.close(descriptor)
            os.dup2(out, 1)
            os.dup2(err, 2)
            os.close(out)
            os.close(err)
            self.grow_up(socket.socket(fileno=connection))
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)

    def _reap(self) -> None:
        """Tell of every call that has ended, once what it left behind is ended too."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            if found.si_pid in self.calls:
                _signal_group(found.si_pid, signal.SIGKILL)  # while nobody else can have the number
            _, status = os.waitpid(found.si_pid, 0)
            told = self.calls.pop(found.si_pid, None)
            if told is None:
                continue
            if not self.calls:
                _end_strays()
            with contextlib.suppress(BrokenPipeError):
                os.write(told, FIGURE.pack(os.waitstatus_to_exitcode(status)))
            os.close(told)

    def _end_all(self) -> None:
        for pid in self.calls:
            _signal_group(pid, signal.SIGKILL)
        end = time.monotonic() + _LAST_MOMENTS
        while self.calls and time.monotonic() < end:  # one that hangs in a driver may never go
            self._reap()
            time.sleep(0.005)


def main(control: int, kernel: int, preload: Sequence[str] = PRELOAD) -> None:
    """Warm up and serve.

    Args:
        control: the descriptor of the socket that orders come over.
        kernel: the process id of the kernel.
        preload: what to import first.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what a call leaves behind is given to us, and not to init
    socket_ = socket.socket(fileno=control)
    try:
        watched = os.pidfd_open(kernel)
    except ProcessLookupError:
        return
    warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)  # BLAS'
    begin = time.monotonic()
    for name in preload:
        with contextlib.suppress(Exception):  # whoever imports it in a call is told what is wrong with it
            importlib.import_module(name)
    from tfgpu_magic.isolate import infant

    gc.collect()
    gc.freeze()  # what is collected in a child would be copied first
    with contextlib.suppress(OSError):
        socket_.send(READY + FIGURE.pack(round(1000 * (time.monotonic() - begin))))
    Nursery(socket_, watched, infant.live).run()


def _end_strays() -> None:
    """Kill what a call has started and cut off from itself; only called when no call lives."""
    for listing in Path("/proc/self/task").glob("*/children"):
        for pid in listing.read_text().split():
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _prctl(option: int, value: int) -> None:
    libc: Any = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
