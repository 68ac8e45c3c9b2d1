"""The driver's calls for parking: THE ONLY module that makes them, and only in a process that can be given up.

That is a driver worker. It is told in lines of JSON on its standard input to make one call at a time, and answers each
by one on its standard output. Each order says how long it may take, and an alarm ends the worker then, wherever it is:
its kernel may be stopped, and could not. When its input ends, or its parent is another, the kernel has died. Whatever
ends it but the alarm and SIGKILL, it unlocks what it has locked, and frees what it has taken.
Source: CUDA Driver API reference, "Checkpoint" (`cuCheckpointProcess…`, in libcuda from driver 570 on), "Primary
Context Management" and "Memory Management". A call may take seconds, and for a process that is stopped it never
returns, whatever timeout it was given.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from tfgpu_magic.frameworks import cuda
from tfgpu_magic.monitor.board.lockfile import LIBRARIES, PARKING_NAME
from tfgpu_magic.monitor.driver.readers import Readers
from tfgpu_magic.parking.states import CudaState
from tfgpu_magic.units import MIB

OK, OUT_OF_MEMORY, NO_CUDA = 0, 2, 3
NO_DEVICE = 100
NO_SUCH_PROCESS, LOCK_TIMED_OUT = 304, 600
MISSING = 500
"""Numbers of errors, as cuda.h has them; the last one is also that of a function that the library lacks."""

RESTORE = "cuCheckpointProcessRestore"  # the one call that may fail for good
CHECKPOINT = "cuCheckpointProcessCheckpoint"
COMPLETE = "cuCheckpointOperationComplete"
CUSTOM_STORAGE = 13040  # the version of CUDA in which the caller may keep what is checkpointed
DISK = "disk"  # what a call is called that failed in a file; its code is the system's
PIECE = 64 * MIB  # bytes that are copied at once
START_TIMEOUT = 60.0  # seconds in which the driver starts: one to three for each GPU without persistence mode
LOOK_EVERY = 2.0  # seconds between two looks whether the process that orders lives
LEAVE_TIMEOUT = 30.0  # seconds in which a worker whose orders have ended leaves everything unlocked
_NO_STATE = {NO_CUDA: CudaState.NO_CUDA, NO_SUCH_PROCESS: CudaState.UNKNOWN}  # the latter is the system's error, too


_Arguments = ctypes.c_uint64 * 8
"""The arguments of a call, all zero; a lock's timeout comes first. Restore would take other GPUs here, by UUID."""


class _PerDevice(ctypes.Structure):
    _fields_ = (("at", ctypes.c_uint64), ("size", ctypes.c_size_t), ("stream", ctypes.c_void_p))


class _CustomStorage(ctypes.Structure):
    """What is mapped here, of each GPU, until the operation of this handle is completed."""

    _fields_ = (("handle", ctypes.c_void_p), ("device", ctypes.POINTER(_PerDevice)), ("devices", ctypes.c_uint))


class DriverError(Exception):
    """A call that the driver declined: its name, and the driver's number of the error."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: {code}")
        self.call, self.code = call, code


class Driver:
    """The driver, opened from where the system finds it or from a folder, and the room taken for another process."""

    def __init__(self, folders: Iterable[str] = ()) -> None:
        self._library = _load(folders)
        self._taken: list[ctypes.c_uint64] = []
        self._contexts: list[ctypes.c_int] = []
        self._call("cuInit", 0)
        self._readers = Readers(folders)

    def snapshot(self) -> str:
        """Return the GPUs and their processes now, as a snapshot's JSON."""
        return self._readers.read(graphics=False).to_json()

    def state(self, pid: int) -> CudaState:
        """Return a process's state, or what is found instead; newer drivers have more than are known here."""
        state = ctypes.c_int()
        try:
            self._call("cuCheckpointProcessGetState", pid, ctypes.byref(state))
            return CudaState(state.value)
        except ValueError:
            return CudaState.UNKNOWN
        except DriverError as error:
            if error.code in _NO_STATE:
                return _NO_STATE[error.code]
            raise

    def lock(self, pid: int, seconds: float) -> None:
        """Let what a process has submitted end, and have its further calls wait."""
        self._call("cuCheckpointProcessLock", pid, _Arguments(int(1000 * seconds)))  # milliseconds

    def checkpoint(self, pid: int, file: str | None = None, gpus: Sequence[str] = ()) -> None:
        """Copy a locked process's memory into its own host memory or to a file, and let go of its GPUs.

        Of what goes to a file the process keeps nothing. It is mapped here meanwhile, for which this process needs a
        context on each of its GPUs. Where that fails, in the driver or, as `DISK` with the system's number of the
        error, in the file, this process has to end: the driver takes back what is not completed.
        """
        if file is None:
            self._call(CHECKPOINT, pid, _Arguments())
            return
        self._retain(gpus)
        storage = self._begin(CHECKPOINT, pid, 0)
        buffer = ctypes.create_string_buffer(PIECE)
        with _opened(file) as opened:
            for place, data, size in _pieces(storage):
                self._call("cuMemcpyDtoH_v2", buffer, ctypes.c_uint64(data), ctypes.c_size_t(size))
                content = buffer.raw[:size]
                if content != bytes(size):  # zeros take no room
                    opened.seek(place)
                    opened.write(content)
            opened.truncate(sum(storage.device[number].size for number in range(storage.devices)))
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self._complete(storage)
        self.let_go()

    def restore(self, pid: int, file: str | None = None) -> None:
        """Bring a process's memory back, at once after the room that was taken for it is free; it stays locked.

        Where it fails, that is as in `checkpoint`; where there was too little room, it is for good.
        """
        for at in self._taken:
            self._call("cuMemFree_v2", at)
        self._taken = []
        if file is None:
            self._call(RESTORE, pid, _Arguments())
            return
        storage = self._begin(RESTORE, pid, 2)
        with _opened(file) as opened:
            for place, data, size in _pieces(storage):
                opened.seek(place)
                content = opened.read(size)
                if len(content) < size:
                    raise OSError(errno.EIO, "the file is too short")
                at, length = ctypes.c_uint64(data), ctypes.c_size_t(size)
                if content == bytes(size):
                    self._call("cuMemsetD8_v2", at, ctypes.c_ubyte(0), length)
                else:
                    self._call("cuMemcpyHtoD_v2", at, content, length)
                os.posix_fadvise(opened.fileno(), place, size, os.POSIX_FADV_DONTNEED)
        self._complete(storage)

    def _begin(self, call: str, pid: int, argument: int) -> _CustomStorage:
        """Have a process's memory mapped here by a call that takes where to say so as the argument of this number."""
        at, arguments = ctypes.POINTER(_CustomStorage)(), _Arguments()
        arguments[argument] = ctypes.addressof(at)
        self._call(call, pid, arguments)
        return at.contents

    def _complete(self, storage: _CustomStorage) -> None:
        """Have the driver end what it has mapped; the call is found by its name and the version that brought it."""
        function, found = ctypes.c_void_p(), ctypes.c_int()
        version, flags = ctypes.c_int(CUSTOM_STORAGE), ctypes.c_uint64()
        arguments = (COMPLETE.encode(), ctypes.byref(function), version, flags, ctypes.byref(found))
        self._call("cuGetProcAddress_v2", *arguments)
        code = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(function.value or 0)(storage.handle)
        if code != OK:
            raise DriverError(COMPLETE, code)

    def unlock(self, pid: int) -> None:
        """Let a locked process's calls go on."""
        self._call("cuCheckpointProcessUnlock", pid, _Arguments())

    def take(self, room: Mapping[str, int]) -> None:
        """Take room on GPUs, as bytes by UUID, until a restore needs it or `let_go` frees it; all of it or none.

        A context on each GPU comes with it, which stays until `let_go`: what is restored has more room than it needs.
        """
        try:
            for gpu, size in room.items():
                at = ctypes.c_uint64()
                self._retain([gpu])
                self._call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
                self._taken.append(at)
        except DriverError:
            self.let_go()
            raise

    def _retain(self, gpus: Iterable[str]) -> None:
        """Have a context on each of these GPUs until `let_go`, and the last one's current."""
        order = cuda.shown()
        if not set(order).issuperset(gpus):
            raise DriverError("cuDeviceGet", NO_DEVICE)
        for gpu in gpus:
            device, context = ctypes.c_int(), ctypes.c_void_p()
            self._call("cuDeviceGet", ctypes.byref(device), order.index(gpu))
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self._contexts.append(device)
            self._call("cuCtxSetCurrent", context)

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


@contextlib.contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    """Give a file; what fails in it is raised as an error of the driver's."""
    try:
        with Path(file).open("r+b") as opened:
            yield opened
    except OSError as error:
        raise DriverError(DISK, error.errno or errno.EIO) from error


def _pieces(storage: _CustomStorage) -> Iterator[tuple[int, int, int]]:
    """Give each piece of what is mapped: its place in the file, its address, its size."""
    place = 0
    for one in (storage.device[number] for number in range(storage.devices)):
        for offset in range(0, one.size, PIECE):
            yield place + offset, one.at + offset, min(PIECE, one.size - offset)
        place += one.size


def serve(driver: Driver, orders: Iterable[str], answers: TextIO) -> None:
    """Answer each order by a line until there are no more, or nobody listens any more."""
    locked: set[int] = set()
    try:
        for line in orders:
            order = json.loads(line)
            signal.setitimer(signal.ITIMER_REAL, order["seconds"])
            try:
                answer = {"answer": _obey(driver, locked, order["call"], *order["arguments"])}
            except DriverError as error:
                answer = vars(error)
            signal.setitimer(signal.ITIMER_REAL, 0)
            print(json.dumps(answer), file=answers, flush=True)
    except OSError:
        pass
    finally:  # whatever ends it, no process is left locked that was locked here
        signal.setitimer(signal.ITIMER_REAL, LEAVE_TIMEOUT)
        for pid in locked:
            with contextlib.suppress(DriverError):
                driver.unlock(pid)
        driver.let_go()
        signal.setitimer(signal.ITIMER_REAL, 0)


def _obey(driver: Driver, locked: set[int], call: str, *arguments: Any) -> Any:
    """Make one call, note what is locked, and return its answer.

    What comes from a file is noted only when all of it is there: it must not go on with half of its memory. Where the
    worker ends just then, the process finds itself locked, and unlocks itself (`gpu_state`).
    """
    locks, from_file = call in ("lock", "restore"), call == "restore" and len(arguments) > 1
    if locks and not from_file:
        locked.add(arguments[0])  # before it is: a signal is heard as soon as the driver has done it
    try:
        answer = getattr(driver, call)(*arguments)
    except DriverError:
        if locks:
            locked.discard(arguments[0])
        raise
    if locks:
        locked.add(arguments[0])
    elif call in ("checkpoint", "unlock"):
        locked.discard(arguments[0])
    return answer


def orders(parent: int) -> Iterator[str]:
    """Give the orders of this process's parent, until there are no more or it has died."""
    while os.getppid() == parent:  # what it has forked may have them open for longer
        if select.select([sys.stdin], [], [], LOOK_EVERY)[0]:
            if not (line := sys.stdin.readline()):
                return
            yield line


def answers() -> TextIO:
    """Return standard output for this process's answers alone: what a library prints goes to standard error."""
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return kept


def _end(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once
    sys.exit()


def main() -> None:
    """Be a worker."""
    parent = os.getppid()
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as name:  # noqa: PTH123
        name.write(PARKING_NAME)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # it ends the process, in the middle of a call of C too
    signal.signal(signal.SIGTERM, _end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM, signal.SIGTERM})
    signal.setitimer(signal.ITIMER_REAL, START_TIMEOUT)
    told = answers()
    folders = [folder for folder in os.environ.get(LIBRARIES, "").split(":") if folder]
    try:
        driver = Driver(folders)
    except DriverError as error:
        print(json.dumps(vars(error)), file=told, flush=True)
        return
    print(json.dumps({"answer": os.getpid()}), file=told, flush=True)
    signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        serve(driver, orders(parent), told)
    finally:
        os._exit(0)  # nothing to tidy up: the system frees everything, and a library may take its time
