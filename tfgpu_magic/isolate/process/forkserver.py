"""The process that starts calls: it imports TensorFlow once and forks for each; the other end is `forkserver_client`.

It stays single-threaded as far as it can, wakes no GPU, and ends with its kernel, taking every call along. Its orders
come over one socket; how a call stands goes over a pipe of the call's own: first the pid, then the exit status.
Source: prctl(2) on PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER; pidfd_open(2); `multiprocessing.forkserver`'s pattern.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from tfgpu_magic.isolate.process import worker
from tfgpu_magic.isolate.process.descendants import Descendants, Ended, children
from tfgpu_magic.isolate.process.order import ANSWER_ME
from tfgpu_magic.isolate.process.protocol import FIGURE, ORDER, READY

_LAST_MOMENTS = 3.0  # seconds in which killed calls are waited for, when the kernel has gone

_FIRST_TO_DIE = "500"  # of 1000: what the out-of-memory killer adds to its size, as a share of all memory

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


@dataclass(slots=True)
class ForkServer:
    """The calls that live, and the way to their kernel.

    Attributes:
        control: where orders come from.
        kernel: the pidfd of the kernel; None where the system has none, and the end of orders must do.
        grow_up: what a child runs, given its connection.
        calls: the pipe of each living call, by its pid.
        killed: the calls that were to be killed.
        descendants: what those that have ended have left behind.
    """

    control: socket.socket
    kernel: int | None
    grow_up: Callable[[socket.socket, int], None]
    calls: dict[int, int] = field(default_factory=dict)
    killed: set[int] = field(default_factory=set)
    descendants: Descendants = field(default_factory=Descendants)

    def run(self) -> None:
        """Serve until the kernel is gone or wants no more calls."""
        wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with selectors.EpollSelector() as selector:
            sources = [self.control.fileno(), wake, *([] if self.kernel is None else [self.kernel])]
            for source in sources:
                selector.register(source, selectors.EVENT_READ)
            mine = {*sources, waker, selector.fileno()}
            while True:
                ready = {key.fd for key, _ in selector.select(self.descendants.due())}
                if wake in ready:
                    os.read(wake, 4096)
                if wake in ready or self.descendants.over:
                    self._reap()
                if self.kernel in ready or (self.control.fileno() in ready and not self._obey(mine)):
                    break
        self._end_all()

    def _obey(self, mine: Collection[int]) -> bool:
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
            self._signal(pid, number)
        return True

    def _signal(self, pid: int, number: int) -> None:
        if number == signal.SIGKILL and pid not in self.killed:
            self.killed.add(pid)
            _kill(pid)  # alone: what it has started has a moment to tidy up, when it has gone
        else:
            _signal_group(pid, number)

    def _start(self, descriptors: Sequence[int], mine: Collection[int]) -> None:
        """Start a call; where that fails, the negative errno is told for its pid."""
        told, *its_own = descriptors
        pid = -errno.EMFILE  # where some did not arrive
        if len(its_own) == 4:
            try:
                pid = os.fork()
            except OSError as error:
                pid = -(error.errno or errno.EAGAIN)
        if pid == 0:
            self._begin(its_own, {told, *mine, *self.calls.values(), *(ended.told for ended in self.descendants.over)})
        for descriptor in its_own:
            os.close(descriptor)
        if pid > 0:
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)  # the child does that too: whoever comes first
            self.calls[pid] = told
        _tell(told, pid)
        if pid < 0:
            os.close(told)

    def _begin(self, its_own: Sequence[int], strange: Collection[int]) -> NoReturn:
        """In the child: become a process of its own, and run the call."""
        status = 1
        try:
            parent = os.getppid()
            # A group of its own: what is done to the call is done to all that it started, and an interrupt of
            # another cell, which goes to the kernel's group, is not for it.
            os.setpgid(0, 0)
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # the fork server has one thread, so it dies when that does
            if os.getppid() != parent:
                os._exit(1)
            # Whoever cuts itself off from the call is the call's own child then, and ours once the call has ended.
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
            with contextlib.suppress(OSError):  # where memory runs out, a call is to die, and not its notebook
                Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_DIE)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.control.detach()
            for descriptor in strange:
                os.close(descriptor)
            connection, *prints, crash = its_own
            for number, descriptor in enumerate(prints, start=1):
                os.dup2(descriptor, number)
                os.close(descriptor)
            way_home = socket.socket(fileno=connection)  # kept to the end: the call may have closed its descriptor
            self.grow_up(way_home, crash)
            status = 0  # and nothing of Python's end: what TensorFlow would do takes a second, the system does it too
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)

    def _reap(self) -> None:
        """Take in all who have ended, and tell of the calls among them once what they left behind has ended too."""
        new = self._take_in()
        left = children()
        while more := self._take_in():  # it ended meanwhile, and some of these are its own
            new, left = [*new, *more], children()
        for ended in self.descendants.end(left.difference(self.calls), new):
            _tell(ended.told, ended.status)
            os.close(ended.told)

    def _take_in(self) -> list[Ended]:
        """The calls that have ended and not been taken in."""
        found: list[Ended] = []
        with contextlib.suppress(ChildProcessError):
            while (one := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if one.si_pid in self.calls:
                    _signal_group(one.si_pid, signal.SIGTERM)  # while nobody else can have the number
                _, status = os.waitpid(one.si_pid, 0)
                if one.si_pid in self.calls:
                    found.append(Ended(self.calls.pop(one.si_pid), os.waitstatus_to_exitcode(status)))
                    self.killed.discard(one.si_pid)
        return found

    def _end_all(self) -> None:
        for pid in self.calls:
            _kill(pid)
        end = time.monotonic() + _LAST_MOMENTS
        while (
            self.calls or self.descendants.over
        ) and time.monotonic() < end:  # one that hangs in a driver may never go
            self._reap()
            time.sleep(0.005)
        for pid in self.calls:
            _signal_group(pid, signal.SIGKILL)


def main(control: int, kernel: int, preload: Sequence[str]) -> None:
    """Warm up and serve.

    Args:
        control: the descriptor of the socket that orders come over.
        kernel: the process id of the kernel.
        preload: what to import before the first call; what is not installed is left out.
    """
    # An interrupt is not for us, and one that comes early waits in a call's process until that can hear it.
    signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGINT, ANSWER_ME})
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what a call leaves behind is given to us, and not to init
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)  # for the calls; what stood there has been read
    orders = socket.socket(fileno=control)
    watched = None
    with contextlib.suppress(AttributeError, OSError):  # Linux before 5.3, or a Python that was built on one
        watched = os.pidfd_open(kernel)
    warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)  # BLAS'
    begin = time.monotonic()
    for name in preload:
        with contextlib.suppress(Exception):  # whoever imports it in a call is told what is wrong with it
            importlib.import_module(name)
    sys.path_importer_cache.clear()  # each call forgets what it listed, and would copy it for that
    gc.collect()
    gc.freeze()  # what is collected in a child would be copied first
    with contextlib.suppress(OSError):
        orders.send(READY + FIGURE.pack(round(1000 * (time.monotonic() - begin))))
    ForkServer(orders, watched, worker.live).run()
    os._exit(0)


def _tell(told: int, figure: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody wants to know any more
        os.write(told, FIGURE.pack(figure))


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    libc: Any = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
