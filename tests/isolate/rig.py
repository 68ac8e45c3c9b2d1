"""What the tests of calls share: a sink that keeps what it is shown, calls that use it, and what we have open."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.isolate import deeds
from tests.sizes import MIB
from tests.waiting import until
from tfgpu_magic.isolate.call import Call, Setup
from tfgpu_magic.isolate.leasing import Lease
from tfgpu_magic.isolate.run import Run, setup
from tfgpu_magic.isolate.sinks import Sink
from tfgpu_magic.isolate.values import pickling
from tfgpu_magic.machine.see import look
from tfgpu_magic.policy import parser
from tfgpu_magic.policy.policy import NOTHING

RUNNER = "tfgpu_magic.isolate.process.worker:call"


class Paper(Sink):
    """A sink that keeps a MiB of what is written, and counts the characters of all."""

    def __init__(self) -> None:
        self.text: dict[str, str] = {"stdout": "", "stderr": ""}
        self.counts: Counter[str] = Counter()
        self.pieces = 0
        self.longest = 0

    def write(self, stream: str, text: str) -> None:
        self.counts.update({character: text.count(character) for character in set(text)})
        self.pieces += 1
        self.longest = max(self.longest, len(text))
        if len(self.text[stream]) < MIB:
            self.text[stream] += text

    def show(self, message: Mapping[str, Any]) -> None:
        raise AssertionError(message)


def call(function: Callable[..., Any], *args: Any, timeout: float | None = None) -> tuple[Run, Paper]:
    """Return the run of a call, and the sink that its output goes to."""
    work, paper = pickling.dump_call(function, args, {}), Paper()
    return Run(call=Call(timeout=timeout), work=work.parts, sink=paper), paper


def run(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    policy: str | None = None,
    timeout: float | None = None,
) -> Any:
    """Run a call to its end, and return what it returns."""
    work = pickling.dump_call(function, args, kwargs)
    return Run(call=Call(timeout=timeout), work=work.parts).run_process(prepare(policy)).value()


def prepare(policy: str | None = None) -> Setup:
    """Return the setup of a process that is as this one is, with a policy."""
    asked = parser.parse(policy) if policy else NOTHING
    return setup(Call(), Lease(asked, look() if policy else None), RUNNER)


def interrupt_to_the_end(one: Run) -> None:
    """Interrupt a call until it has ended."""
    while one.status is None:
        one.interrupt()
        time.sleep(0.1)


@contextlib.contextmanager
def soon(mark: Path, action: Callable[[], object]) -> Iterator[None]:
    """Do something beside the block once the mark is there."""

    def act() -> None:
        until(mark.exists, every=0.01)
        action()

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@contextlib.contextmanager
def beside(*marks: Path) -> Iterator[list[threading.Thread]]:
    """Have a call for each mark run beside the block, at whose end they return."""
    threads = [threading.Thread(target=run, args=(deeds.wait_for, (mark,), {})) for mark in marks]
    for thread in threads:
        thread.start()
    until(lambda: all(map(deeds.begun, marks)))
    try:
        yield threads
    finally:
        for mark, thread in zip(marks, threads, strict=True):
            mark.touch()
            thread.join()


def descriptors() -> dict[str, str]:
    """Return what this process has open."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found[entry.name] = str(entry.readlink())
    return found


def belongings() -> tuple[dict[str, str], int]:
    """Return what this process has that a call might leave behind."""
    return descriptors(), threading.active_count()
