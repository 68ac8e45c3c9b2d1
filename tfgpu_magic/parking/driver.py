"""The driver's calls for parking: THE ONLY module that makes them, and only in a process that can be given up.

That is a driver worker. It is told in lines of JSON on its standard input to make one call at a time, and answers each
by one on its standard output. Each order says how long it may take, and an alarm ends the worker then, wherever it is:
its kernel may be stopped, and could not. When its input ends, the kernel has died. Whatever ends it but the alarm, it
unlocks what it has locked, and frees what it has taken.
Source: CUDA Driver API reference, "Checkpoint" (`cuCheckpointProcess…`, in libcuda from driver 570 on), "Primary
Context Management" and "Memory Management". A call may take seconds, and for a process that is stopped it never
returns, whatever timeout it was given.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, TextIO

from tfgpu_magic.frameworks import cuda
from tfgpu_magic.monitor.board.lockfile import LIBRARIES, PARKING_NAME
from tfgpu_magic.monitor.driver.readers import Readers
from tfgpu_magic.parking.states import CudaState, Found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

OK, OUT_OF_MEMORY, NO_CUDA = 0, 2, 3
NO_DEVICE = 100
NO_SUCH_PROCESS, LOCK_TIMED_OUT = 304, 600
MISSING = 500
"""Numbers of errors, as cuda.h has them; the last one is also that of a function that the library lacks."""

RESTORE = "cuCheckpointProcessRestore"
"""The one call that may fail for good."""
LEAVE_TIMEOUT = 30.0
"""Seconds in which a worker whose orders have ended leaves everything unlocked."""
_ENDED = {NO_CUDA: Found.NO_CUDA, NO_SUCH_PROCESS: Found.GONE}


class _LockArguments(ctypes.Structure):
    _fields_ = (("timeout_ms", ctypes.c_uint), ("reserved", ctypes.c_uint), ("more", ctypes.c_uint64 * 7))


class _Arguments(ctypes.Structure):
    """The arguments of the other calls: 64 bytes, all zero. Restore would take other GPUs here, by UUID."""

    _fields_ = (("reserved", ctypes.c_uint64 * 8),)


class DriverError(Exception):
    """A call that the driver declined.

    Attributes:
        call: the call's name.
        code: the driver's number of the error.
    """

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: {code}")
        self.call, self.code = call, code


class Driver:
    """The opened driver, with the room that this process has taken for another one.

    Args:
        folders: where else to look for the library, if the system does not find it.

    Raises:
        DriverError: it cannot be opened.
    """

    def __init__(self, folders: Iterable[str] = ()) -> None:
        self._library = _load(folders)
        self._taken: list[ctypes.c_uint64] = []
        self._contexts: list[ctypes.c_int] = []
        self._call("cuInit", 0)

    def state(self, pid: int) -> CudaState | Found:
        """Return a process's state; newer drivers have more than are known here."""
        state = ctypes.c_int()
        self._call("cuCheckpointProcessGetState", pid, ctypes.byref(state))
        try:
            return CudaState(state.value)
        except ValueError:
            return Found.UNKNOWN

    def lock(self, pid: int, seconds: float) -> None:
        """Let what a process has submitted end, and have its further calls wait."""
        self._call("cuCheckpointProcessLock", pid, ctypes.byref(_LockArguments(timeout_ms=int(1000 * seconds))))

    def checkpoint(self, pid: int) -> None:
        """Copy a locked process's memory into its own host memory, and let go of its GPUs."""
        self._call("cuCheckpointProcessCheckpoint", pid, ctypes.byref(_Arguments()))

    def restore(self, pid: int) -> None:
        """Bring a process's memory back, at once after the room that was taken for it is free; it stays locked.

        Raises:
            DriverError: it failed, and fails for good where there was too little room.
        """
        for at in self._taken:
            self._call("cuMemFree_v2", at)
        self._taken = []
        self._call(RESTORE, pid, ctypes.byref(_Arguments()))

    def unlock(self, pid: int) -> None:
        """Let a locked process's calls go on."""
        self._call("cuCheckpointProcessUnlock", pid, ctypes.byref(_Arguments()))

    def take(self, room: Mapping[str, int]) -> None:
        """Take room on GPUs, as bytes by UUID, until a restore needs it or `let_go` frees it; all of it or none.

        A context on each GPU comes with it, which stays until `let_go`: so what is restored has more room than it
        needs.

        Raises:
            DriverError: there is no room for all of it.
        """
        order = cuda.shown()
        if not set(order).issuperset(room):
            raise DriverError("cuDeviceGet", NO_DEVICE)
        try:
            for gpu, size in room.items():
                device, context, at = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
                self._call("cuDeviceGet", ctypes.byref(device), order.index(gpu))
                self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
                self._contexts.append(device)
                self._call("cuCtxSetCurrent", context)
                self._call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
                self._taken.append(at)
        except DriverError:
            self.let_go()
            raise

    def let_go(self) -> None:
        """Free all that was taken, contexts included."""
        for at in self._taken:
            self._library.cuMemFree_v2(at)
        for device in self._contexts:
            self._library.cuDevicePrimaryCtxRelease_v2(device)
        self._taken, self._contexts = [], []

    def _call(self, name: str, *arguments: object) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise DriverError(name, MISSING) from None
        code = int(function(*arguments))
        if code != OK:
            raise DriverError(name, code)


def _load(folders: Iterable[str]) -> ctypes.CDLL:
    """Load the library from where the system finds it, else from the first folder that has it."""
    for path in (cuda.LIBRARY, *(f"{folder}/{cuda.LIBRARY}" for folder in folders)):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise DriverError("dlopen", NO_DEVICE)


class DriverService:
    """What a worker does.

    Args:
        driver: the calls.
        look: returns the GPUs and their processes now, as a snapshot's JSON.
    """

    def __init__(self, driver: Driver, look: Callable[[], str]) -> None:
        self._driver, self._look = driver, look
        self._locked: set[int] = set()

    def obey(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Make one call, and return its answer."""
        try:
            return {"answer": self._made(order["call"], *order["arguments"])}
        except DriverError as error:
            return {"call": error.call, "code": error.code}

    def leave(self) -> None:
        """Leave no process locked that this one has locked."""
        for pid in self._locked:
            with contextlib.suppress(DriverError):
                self._driver.unlock(pid)
        self._driver.let_go()

    def _made(self, call: str, *arguments: Any) -> Any:
        if call == "snapshot":
            return self._look()
        if call == "state":
            return self._state(*arguments)
        getattr(self._driver, call)(*arguments)
        if call in ("lock", "restore"):
            self._locked.add(arguments[0])
        elif call in ("checkpoint", "unlock"):
            self._locked.discard(arguments[0])
        return None

    def _state(self, pid: int) -> int | str:
        try:
            return self._driver.state(pid).value
        except DriverError as error:
            if error.code in _ENDED:
                return _ENDED[error.code].value
            raise


def serve(worker: DriverService, orders: TextIO, answers: TextIO) -> None:
    """Obey until there are no more orders, or nobody listens any more; then, and whatever else happens, leave."""
    try:
        for line in orders:
            order = json.loads(line)
            signal.setitimer(signal.ITIMER_REAL, order["seconds"])
            answer = worker.obey(order)
            signal.setitimer(signal.ITIMER_REAL, 0)
            print(json.dumps(answer), file=answers, flush=True)
    except OSError:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, LEAVE_TIMEOUT)
        worker.leave()
        signal.setitimer(signal.ITIMER_REAL, 0)


def answers() -> TextIO:
    """Return standard output for this process's answers alone: what a library prints goes to standard error."""
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return kept


def main() -> None:
    """Be a worker."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as name:  # noqa: PTH123
        name.write(PARKING_NAME)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # it ends the process, in the middle of a call of C too
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    told = answers()
    folders = [folder for folder in os.environ.get(LIBRARIES, "").split(":") if folder]
    try:
        driver = Driver(folders)
    except DriverError as error:
        print(json.dumps({"call": error.call, "code": error.code}), file=told, flush=True)
        return
    readers = Readers(folders)
    print(json.dumps({"answer": os.getpid()}), file=told, flush=True)
    serve(DriverService(driver, lambda: readers.read(graphics=False).to_json()), sys.stdin, told)
    os._exit(0)  # nothing to tidy up: the system frees everything, and a library may take its time
