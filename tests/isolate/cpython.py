"""Runs CPython 3.11's own tests of executors with `IsolatedExecutor`, as a program: outcomes by test, in JSON.

    python -m tests.isolate.cpython

They are those of a process pool. Their classes are taken as they are; what an executor of theirs would be called, and
what it would raise, is put into their module, and so is the time that a busy machine takes.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import importlib.util
import io
import json
import sys
import time
import traceback
import unittest
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import cloudpickle

from tests.slack import SLACK
from tfgpu_magic import IsolatedExecutor, Unpicklable, WorkerDied

MODULE = "test.test_concurrent_futures"
DEBIAN = Path("/usr/lib/python3.11/test")
"""Where Debian's libpython3.11-testsuite has the tests, which not every build of Python installs."""

OURS = {"BrokenProcessPool": WorkerDied, "PicklingError": Unpicklable}
"""What is raised instead: there is no pool that could break, and what cannot be pickled is named."""

AT_ONCE = 8
"""Most tests sleep."""


def sleep(seconds: float) -> None:
    """Sleep longer, as all else may take longer, too."""
    time.sleep(seconds * SLACK)


def wait(futures: Any, timeout: float | None = None, **options: Any) -> Any:
    """Wait longer."""
    return concurrent.futures.wait(futures, timeout and timeout * SLACK, **options)


class Executor(IsolatedExecutor):
    """As their tests construct one."""

    def __init__(self, max_workers: int | None = None, **options: Any) -> None:
        options.pop("mp_context", None)  # there is one way to start a process
        super().__init__(max_workers, gpus=0, **options)
        self._asked = weakref.WeakSet[Future[Any]]()

    def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> Any:
        future = super().submit(function, *arguments, **keywords)
        self._asked.add(future)
        return future

    def map(self, fn: Any, *iterables: Any, timeout: float | None = None, chunksize: int = 1) -> Any:
        return super().map(fn, *iterables, timeout=timeout and timeout * SLACK, chunksize=chunksize)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        # Theirs count on one that has begun by then; here seven other tests may have the interpreter.
        while cancel_futures and self._asked and not any(one.running() or one.done() for one in list(self._asked)):
            time.sleep(0.001)
        super().shutdown(wait, cancel_futures=cancel_futures)


def find() -> ModuleType:
    """Return CPython's module of tests."""
    if importlib.util.find_spec(MODULE) is None:
        importlib.import_module("test").__path__.append(str(DEBIAN))
    try:
        return importlib.import_module(MODULE)
    except ModuleNotFoundError as error:
        sys.exit(f"CPython's own tests are not here ({error}). Debian: apt install libpython3.11-testsuite")


def classes(theirs: Any) -> list[type[unittest.TestCase]]:
    """Return CPython's tests of a process pool, with our executor; its tests of futures alone have nothing of ours."""

    class Ours(theirs.ExecutorMixin):  # type: ignore[misc]  # it is known only when it is imported
        executor_type = Executor

        def get_context(self) -> None: ...

    made = [kind for kind in vars(theirs).values() if isinstance(kind, type)]
    pools = [kind for kind in made if kind.__bases__[1:2] == (theirs.ProcessPoolForkserverMixin,)]
    return [
        type(mixin.__name__, (mixin, Ours, unittest.TestCase), {}) for mixin, *_ in (kind.__bases__ for kind in pools)
    ]


def run(case: Any) -> str:
    """Run one test: ``passed``, ``skipped: why`` or ``failed: why``."""
    result = unittest.TestResult()
    try:
        case.run(result)
    except BaseException:
        return f"failed: {traceback.format_exc()}"
    if result.skipped:
        return f"skipped: {result.skipped[0][1]}"
    troubles = [text for _, text in [*result.errors, *result.failures]]
    return f"failed: {troubles[0]}" if troubles else "passed"


def main() -> None:
    """Run all tests, several at once, and print how they ended."""
    theirs: Any = find()
    cloudpickle.register_pickle_by_value(theirs)  # calls need not import it each anew
    for name, error in OURS.items():
        setattr(theirs, name, error)
    theirs.time = SimpleNamespace(sleep=sleep, monotonic=lambda: time.monotonic() / SLACK)  # all that they use of it
    theirs.futures = SimpleNamespace(**{**vars(concurrent.futures), "wait": wait})
    cases: list[Any] = [
        case for kind in classes(theirs) for case in unittest.defaultTestLoader.loadTestsFromTestCase(kind)
    ]
    with Executor(1) as one:  # theirs give a call some seconds, in which TensorFlow need not be imported
        one.submit(abs, -1).result()
    out, sys.stdout = sys.stdout, io.StringIO()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        ended = list(threads.map(run, cases))
    sys.stdout = out
    names = [f"{type(case).__name__}.{case._testMethodName}" for case in cases]
    json.dump(dict(zip(names, ended, strict=True)), sys.stdout)


if __name__ == "__main__":
    main()
