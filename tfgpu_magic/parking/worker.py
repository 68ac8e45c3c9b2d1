"""A worker: a process that makes the driver's calls one at a time, as it is told, and can be given up when one hangs.

It is told in lines of JSON on its standard input, and answers each by one on its standard output. When its input ends,
the helper has died: then it unlocks what it has locked, frees what it has taken, and ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

from tfgpu_magic.monitor.board.lockfile import LIBRARIES, PARKING_NAME
from tfgpu_magic.monitor.driver.readers import Readers
from tfgpu_magic.parking.driver import NO_CUDA, NO_SUCH_PROCESS, Driver, DriverError
from tfgpu_magic.parking.states import Found

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_ENDED = {NO_CUDA: Found.NO_CUDA, NO_SUCH_PROCESS: Found.GONE}


class Worker:
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


def serve(worker: Worker, orders: TextIO, answers: TextIO) -> None:
    """Obey until there are no more orders."""
    for line in orders:
        answer = worker.obey(json.loads(line))
        try:
            print(json.dumps(answer), file=answers, flush=True)
        except OSError:  # nobody listens any more
            break
    worker.leave()


def answers() -> TextIO:
    """Return standard output for this process's answers alone: what a library prints goes to standard error."""
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return kept


def main() -> None:
    """Be a worker."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as name:  # noqa: PTH123
        name.write(PARKING_NAME)
    told = answers()
    folders = [folder for folder in os.environ.get(LIBRARIES, "").split(":") if folder]
    try:
        driver = Driver(folders)
    except DriverError as error:
        print(json.dumps({"call": error.call, "code": error.code}), file=told, flush=True)
        return
    readers = Readers(folders)
    print(json.dumps({"answer": os.getpid()}), file=told, flush=True)
    serve(Worker(driver, lambda: readers.read(graphics=False).to_json()), sys.stdin, told)
    os._exit(0)  # nothing to tidy up: the system frees everything, and a library may take its time
