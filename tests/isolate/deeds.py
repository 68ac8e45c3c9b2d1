"""What the tests have done in processes of calls: crashes, loops, floods and litter."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.sizes import MIB


def nothing() -> int:
    return 1


def echo(value: Any) -> Any:
    return value


def numbers() -> Iterator[int]:
    yield 1


def fail(error: BaseException) -> None:
    raise error


def segfault() -> None:
    ctypes.string_at(0)


def kill_itself(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


def run_out_of_memory() -> int:
    resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
    return len([bytearray(64 * MIB) for _ in range(100)])


def wait_for(file: Path) -> None:
    file.with_suffix(".begun").touch()
    while not file.exists():
        time.sleep(0.01)


def begun(file: Path) -> bool:
    return file.with_suffix(".begun").exists()


def loop_in_python(mark: str = "") -> None:
    _touch(mark)
    while True:
        pass


def loop_in_python_deaf(mark: str = "") -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _touch(mark)
    while True:
        pass


def hang_in_c(mark: str = "") -> None:
    """Wait with the GIL held, and out of every signal's reach, for a lock that is never released."""
    lock, library = ctypes.create_string_buffer(64), ctypes.PyDLL(None)
    library.pthread_mutex_lock(lock)
    _touch(mark)
    library.pthread_mutex_lock(lock)


def heed(mark: str) -> str:
    try:
        loop_in_python(mark)
    except KeyboardInterrupt:
        return "heeded"
    return "never"


def close_output() -> str:
    os.close(1)
    os.close(2)
    return "done"


def flood_lines(size: int) -> None:
    line = "x" * 99
    for _ in range(size // 100):
        print(line)


def flood_one_line(size: int) -> None:
    sys.stdout.write("x" * size)


def print_raw(pieces: list[bytes]) -> None:
    for piece in pieces:
        os.write(1, piece)
        time.sleep(0.05)


def print_everywhere() -> None:
    print("python")
    print("python's error", file=sys.stderr)
    ctypes.CDLL(None).puts(b"c")
    os.write(2, b"descriptor\n")
    subprocess.run(["sh", "-c", "echo shell; echo shell error >&2"], check=True)
    print("kept by python", end="", file=sys.__stdout__)


def flood_while_signals_come(size: int) -> None:
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    sys.stdout.write("x" * size)
    signal.setitimer(signal.ITIMER_REAL, 0)


def leave_processes(mark: str) -> list[int]:
    """Start a child, one in a session of its own, and one whose parent has ended; return their pids."""
    plain = subprocess.Popen(["sleep", "600"])
    apart = subprocess.Popen(["sleep", "600"], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            Path(mark).write_text(str(os.getpid()))
            time.sleep(600)
        os._exit(0)
    while not (Path(mark).exists() and Path(mark).read_text()):
        time.sleep(0.01)
    return [plain.pid, apart.pid, int(Path(mark).read_text())]


def leave_processes_and_loop(mark: str, done: str) -> None:
    pids = leave_processes(mark)
    Path(done + ".new").write_text(" ".join(map(str, [os.getpid(), *pids])))
    Path(done + ".new").rename(done)
    hang_in_c()


def shape_of(array: Any) -> tuple[Any, ...]:
    """Return what a call sees of an array, and write over the array then."""
    seen = (array.flags.writeable, array.flags.f_contiguous, float(array.sum()))
    with contextlib.suppress(ValueError):
        array += 1
    return seen


def limited(limit: int, soft: int, size: int) -> bytes:
    resource.setrlimit(limit, (soft, resource.getrlimit(limit)[1]))
    return bytes(size)


def _touch(mark: str) -> None:
    if mark:
        Path(mark).touch()


class NeedsMore(Exception):
    def __init__(self, *, path: str) -> None:
        super().__init__(f"no {path}")
        self.path = path


class Counts(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")


class Slotted(Exception):
    __slots__ = ("where",)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Locked(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text, threading.Lock())
        self.lock = threading.Lock()
        self.kept = 5


class Doubled:
    """A value that works in place on what it is made again of."""

    def __init__(self) -> None:
        import numpy as np  # environments that test other Pythons have none

        self.numbers = np.ones(2**17)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.numbers = state["numbers"]
        self.numbers *= 2


def fail_doubled() -> None:
    raise ValueError(Doubled())


class OnlyThere:
    """Can be pickled, and never made again."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _refuse, ()


def _refuse() -> None:
    raise ValueError("not again")


def only_there() -> OnlyThere:
    return OnlyThere()


def chained() -> None:
    try:
        dict[str, int]()["first"]
    except KeyError as error:
        raise ValueError("second") from error


def fail_locked() -> None:
    raise Locked("with a lock")


def fail_needs_more() -> None:
    raise NeedsMore(path="/there")


def fail_counts() -> None:
    raise Counts(5)


def raise_with_tblib() -> None:
    """Raise as where TensorFlow is imported beside tblib."""
    import tblib.pickling_support

    tblib.pickling_support.install()
    raise KeyError("here")
