"""The fork server: it imports TensorFlow once and forks for each call; `forkserver_client` is the kernel's side.

It stays single-threaded as far as it can, uses no GPU, and ends with its kernel, and every call with it. Orders arrive
over one socket. The state of a call is written to that call's own pipe: first the pid, then the exit status, once the
call's descendants are gone too: only this process can see them, because it adopts them.
Source: prctl(2) on PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER; pidfd_open(2); proc(5),
``/proc/pid/task/tid/children``; madvise(2) on MADV_COLLAPSE, from Linux 6.1 on; `multiprocessing.forkserver`'s pattern.
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
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, NoReturn

from tfgpu_magic.isolate.process import worker
from tfgpu_magic.isolate.process.wire import FIGURE, ORDER

TERM_TIMEOUT = 1.0
"""Seconds after its call's end in which a process may tidy up: `multiprocessing`'s resource tracker frees memory."""

KILL_TIMEOUT = 1.0
"""Seconds in which a killed descendant is waited for: it may hang in a driver."""

_LOOK_AGAIN = 0.1  # seconds between two looks at them

_END_TIMEOUT = 3.0  # seconds in which killed calls are waited for when the kernel has ended

_OOM_SCORE_ADJ = "500"  # of 1000: what the out-of-memory killer adds to its size, as a share of all memory

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

_MADV_COLLAPSE, _HUGE = 25, 2**21


@dataclass(slots=True, eq=False)
class Ended:
    """A call that has ended.

    Attributes:
        status_pipe: the pipe that its exit status is written to.
        status: its exit status.
        when: when it ended.
    """

    status_pipe: int
    status: int
    when: float = field(default_factory=time.monotonic)


class Descendants:
    """The descendants of ended calls, and when each was first seen.

    Attributes:
        ended: the calls that have ended while descendants of calls are still alive, theirs or others'.
    """

    def __init__(self) -> None:
        self.ended: list[Ended] = []
        self._seen: dict[int, float] = {}

    def end(self, living: set[int], new: Sequence[Ended]) -> list[Ended]:
        """Signal descendants, with SIGKILL where they have had SIGTERM. Return the calls that are over.

        Args:
            living: all living descendants. Only this process can reap them, so their pids are not reused.
            new: the calls that have ended since the last invocation.
        """
        now = time.monotonic()
        self.ended += new
        ending = any(now < one.when + TERM_TIMEOUT for one in self.ended)
        for pid in living:
            tidies_up = ending and now < self._seen.get(pid, now) + TERM_TIMEOUT
            if pid not in self._seen or not tidies_up:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGTERM if tidies_up else signal.SIGKILL)
        self._seen = {pid: self._seen.get(pid, now) for pid in living}
        waits = self._are_young()
        over = [one for one in self.ended if not waits or now >= one.when + TERM_TIMEOUT + KILL_TIMEOUT]
        self.ended = [one for one in self.ended if one not in over]
        return over

    def due(self) -> float | None:
        """Return the seconds until `end` must be invoked again; None if nothing is waited for."""
        return _LOOK_AGAIN if self.ended or self._are_young() else None

    def _are_young(self) -> bool:
        """Return whether one may still end: what was killed a while ago hangs, and is not waited for."""
        return any(time.monotonic() < when + TERM_TIMEOUT + KILL_TIMEOUT for when in self._seen.values())


@dataclass(slots=True)
class ForkServer:
    """The living calls, and the connection to their kernel.

    Attributes:
        control: the socket that orders arrive at.
        kernel: the pidfd of the kernel; None if the system has no pidfds: then the end of orders must do.
        run_child: what a child runs, given its connection and the descriptor of its crash pipe.
        calls: the status pipe of each living call, by its pid.
        killed: the pids of the calls that SIGKILL was sent to.
        descendants: the processes that ended calls have left behind.
    """

    control: socket.socket
    kernel: int | None
    run_child: Callable[[socket.socket, int], None]
    calls: dict[int, int] = field(default_factory=dict)
    killed: set[int] = field(default_factory=set)
    descendants: Descendants = field(default_factory=Descendants)

    def run(self) -> None:
        """Serve until the kernel has ended or closes the socket."""
        wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with selectors.EpollSelector() as selector:
            sources = [self.control.fileno(), wake, *([] if self.kernel is None else [self.kernel])]
            for source in sources:
                selector.register(source, selectors.EVENT_READ)
            own = {*sources, waker, selector.fileno()}
            while True:
                ready = {key.fd for key, _ in selector.select(self.descendants.due())}
                if wake in ready:
                    os.read(wake, 4096)
                if wake in ready or self.descendants.due():
                    self._reap()
                if self.kernel in ready or (self.control.fileno() in ready and not self._obey(own)):
                    break
        self._end_all()

    def _obey(self, own: Collection[int]) -> bool:
        """Carry out one order; return False when no more can come.

        Args:
            own: the descriptors of this process that a child must close.
        """
        try:
            order, descriptors, _, _ = socket.recv_fds(self.control, ORDER.size, 8, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            return False
        if not order:
            return False
        pid, number = ORDER.unpack(order)
        if descriptors:
            self._start(descriptors, own)
        elif pid in self.calls:  # it has not been reaped, so the pid is still its own
            self._signal(pid, number)
        return True

    def _signal(self, pid: int, number: int) -> None:
        if number == signal.SIGKILL and pid not in self.killed:
            self.killed.add(pid)
            _send(os.kill, pid, number)  # alone: after its end, what it has started has a moment to tidy up
        else:
            _send(os.killpg, pid, number)

    def _start(self, descriptors: Sequence[int], own: Collection[int]) -> None:
        """Start a call; where that fails, the negative errno is written in place of its pid."""
        status_pipe, *inherited = descriptors
        pid = -errno.EMFILE  # where some descriptors did not arrive
        if len(inherited) >= 4:
            try:
                pid = os.fork()
            except OSError as error:
                pid = -(error.errno or errno.EAGAIN)
        if pid == 0:
            left_behind = (call.status_pipe for call in self.descendants.ended)
            self._begin(inherited, {status_pipe, *own, *self.calls.values(), *left_behind})
        for descriptor in inherited:
            os.close(descriptor)
        if pid > 0:
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)  # the child does that too: either may be first
            self.calls[pid] = status_pipe
        _report(status_pipe, pid)
        if pid < 0:
            os.close(status_pipe)

    def _begin(self, inherited: Sequence[int], foreign: Collection[int]) -> NoReturn:
        """Turn the forked child into the worker process, and run the call.

        Args:
            inherited: the descriptors of the call from its connection on; see `ORDER`.
            foreign: the descriptors that the child closes.
        """
        status = 1
        try:
            parent = os.getppid()
            # A group of its own: a signal to the call reaches all that it started, and an interrupt of another
            # cell, which goes to the kernel's group, does not reach it.
            os.setpgid(0, 0)
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # sent when the parent's thread ends; it has only one
            if os.getppid() != parent:
                os._exit(1)
            # A daemonized process then becomes the call's child, and the fork server's once the call has ended.
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
            with contextlib.suppress(OSError):  # where memory runs out, the call is to die rather than its notebook
                Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE_ADJ)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.control.detach()
            for descriptor in foreign:
                os.close(descriptor)
            connection, out, err, crash, *tracker = inherited
            if tracker:  # as children of `multiprocessing` have their parent's: its own would free what is the kernel's
                resource_tracker._resource_tracker._fd = tracker[0]  # type: ignore[attr-defined]
            for number, descriptor in ((1, out), (2, err)):
                os.dup2(descriptor, number)
                os.close(descriptor)
            kept = socket.socket(fileno=connection)  # to the end: the call may have closed its descriptor
            self.run_child(kept, crash)
            status = 0  # no end of the interpreter: TensorFlow would take a second to free what the system frees
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)

    def _reap(self) -> None:
        """Reap all ended children; report the exit status of a call that is over."""
        new = self._reap_calls()
        left = children()
        while more := self._reap_calls():  # a call has ended meanwhile, and some of these are its descendants
            new, left = [*new, *more], children()
        for ended in self.descendants.end(left.difference(self.calls), new):
            _report(ended.status_pipe, ended.status)
            os.close(ended.status_pipe)

    def _reap_calls(self) -> list[Ended]:
        """Reap the children that have ended, and return the calls among them."""
        found: list[Ended] = []
        with contextlib.suppress(ChildProcessError):
            while (one := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if one.si_pid in self.calls:
                    _send(os.killpg, one.si_pid, signal.SIGTERM)  # while the number cannot be reused
                _, status = os.waitpid(one.si_pid, 0)
                if one.si_pid in self.calls:
                    found.append(Ended(self.calls.pop(one.si_pid), os.waitstatus_to_exitcode(status)))
                    self.killed.discard(one.si_pid)
        return found

    def _end_all(self) -> None:
        for pid in self.calls:
            _send(os.kill, pid, signal.SIGKILL)
        end = time.monotonic() + _END_TIMEOUT
        while (self.calls or self.descendants.ended) and time.monotonic() < end:  # one may hang in a driver for ever
            self._reap()
            time.sleep(0.005)
        for pid in self.calls:
            _send(os.killpg, pid, signal.SIGKILL)


def main(control: int, kernel: int, preload: Sequence[str]) -> None:
    """Warm up and serve.

    Args:
        control: the descriptor of the socket that orders arrive at.
        kernel: the process id of the kernel.
        preload: the modules to import before the first call; those that are not installed are left out.
    """
    # Interrupts are not for this process; one that comes early stays pending in a worker process until it can act.
    signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGINT})
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # so that this process adopts a call's descendants, and not init
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)  # for the calls; the search path that came there has been read
    orders = socket.socket(fileno=control)
    pidfd = None
    with contextlib.suppress(AttributeError, OSError):  # Linux before 5.3, or a Python that was built on one
        pidfd = os.pidfd_open(kernel)
    warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)  # BLAS'
    for name in preload:
        with contextlib.suppress(Exception):  # a call that imports it gets the error
            importlib.import_module(name)
    sys.path_importer_cache.clear()  # each call clears these caches, and would copy their memory for that
    gc.collect()
    gc.freeze()  # memory that a child collects would be copied first
    with contextlib.suppress(OSError):
        _collapse()
    ForkServer(orders, pidfd, worker.run_call).run()
    os._exit(0)


def _collapse() -> None:
    """Put this process's own memory into huge pages, where the system can: each fork copies its page table."""
    libc: Any = ctypes.CDLL(None)
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, modes, _, _, inode, *_ = line.split()
        if modes == "rw-p" and inode == "0":
            start, end = (int(address, 16) for address in span.split("-"))
            start, end = -(-start // _HUGE) * _HUGE, end // _HUGE * _HUGE
            if start < end:
                libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_COLLAPSE)


def children() -> set[int]:
    """Return the pids of all children of this process."""
    found: set[int] = set()
    for listing in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread has ended
            found.update(map(int, listing.read_text().split()))
    return found


def _report(status_pipe: int, figure: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the kernel has closed its end
        os.write(status_pipe, FIGURE.pack(figure))


def _send(to: Callable[[int, int], None], pid: int, number: int) -> None:
    """Send a signal, to a process by `os.kill` or to its group by `os.killpg`, if it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        to(pid, number)


def _prctl(option: int, value: int) -> None:
    libc: Any = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
