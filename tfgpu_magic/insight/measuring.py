"""Measures what a block, a call or a cell does to GPU memory: `with measure() as m:`, `@measure`, `%%tf_gpu measure`.

Peaks are those of the frameworks' own allocators; `frameworks.peaks` shares their counters, so that
measurements may nest and overlap in threads. A framework has one pool for the whole process: what other threads do
meanwhile counts. The driver's figure is this process's own, whatever its neighbours do.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar, overload

from tfgpu_magic.frameworks import registry
from tfgpu_magic.frameworks.peaks import Mark, SharedPeaks
from tfgpu_magic.frameworks.pool import Pool
from tfgpu_magic.ground.snapshot import Snapshot
from tfgpu_magic.insight.measurement import Measurement, PoolUse, held_changes
from tfgpu_magic.machine.see import look

F = TypeVar("F", bound=Callable[..., Any])


class Measuring:
    """What `measure()` returns: it measures a block, or as a decorator each call of a function.

    Args:
        driver: whether the driver is asked, too.
        report: is given the measurement of each call.
    """

    def __init__(self, *, driver: bool = True, report: Callable[[Measurement], object] = print) -> None:
        self._driver, self._report = driver, report
        self._before: Snapshot | None = None
        self._marks: list[tuple[str, SharedPeaks, Mark]] | None = None
        self._at = self._began = self._ended = 0.0
        self._result: Measurement | None = None

    def __enter__(self) -> Measuring:
        """Begin.

        Raises:
            RuntimeError: it has begun already.
        """
        if self._marks is not None and self._result is None:
            raise RuntimeError("This measurement has begun already: for a block within, call `measure()` again.")
        self._result, self._before = None, look() if self._driver else None
        self._marks = []
        for name, peaks in registry.PEAKS.items():
            with contextlib.suppress(Exception):  # a framework that fails has no figures, and the others keep theirs
                self._marks.append((name, peaks, peaks.begin()))
        self._at, self._began = time.time(), time.perf_counter()
        return self

    def stop_clock(self) -> None:
        """Note the time: what comes until the end is not measured."""
        self._ended = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End. The block's error, if any, is raised again."""
        ended = self._ended if error is not None and self._ended else time.perf_counter()
        measured = self._read(ended, SharedPeaks.end, kind.__name__ if kind else "")
        self._result = measured if self._before is None else _with_driver(measured, self._before, look())

    @property
    def at_beginning(self) -> list[Pool]:
        """The counters when it began."""
        return [one for _, _, mark in self._marks or () for one in mark.began.values()]

    @property
    def result(self) -> Measurement:
        """The measurement: the final one after the block, and in it what is known so far.

        Raises:
            RuntimeError: it has not begun.
        """
        if self._result is not None:
            return self._result
        if self._marks is None:
            raise RuntimeError("Nothing is measured yet: write `with measure() as m:` above what is to be measured.")
        return self._read(time.perf_counter(), SharedPeaks.read)

    def _read(
        self, until: float, counters: Callable[[SharedPeaks, Mark], Iterable[Pool]], error: str = ""
    ) -> Measurement:
        uses, started = list[PoolUse](), list[str]()
        for name, peaks, mark in self._marks or ():
            with contextlib.suppress(Exception):  # as above
                found = [PoolUse.between(name, mark.began.get(one.name), one) for one in counters(peaks, mark)]
                uses += found
                started += [name] if found and not mark.began else []
        taken = until - self._began
        return Measurement(seconds=taken, began=self._at, pools=tuple(uses), started=tuple(started), error=error)

    @property
    def peak(self) -> int:
        """The most bytes in use at once on any one logical GPU."""
        return self.result.peak

    @property
    def delta(self) -> int:
        """The bytes that stayed in use, less those that were given back, on all GPUs."""
        return self.result.delta

    @property
    def held(self) -> int | None:
        """The bytes that came to what the driver gives this process, or None if that is unknown."""
        return self.result.held

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.result.seconds

    def __repr__(self) -> str:
        return repr(self.result) if self._marks is not None else "<a measurement that has not begun>"

    def _repr_html_(self) -> str | None:
        return self.result._repr_html_() if self._marks is not None else None

    def __call__(self, function: F) -> F:
        """Return the function in a form that measures each call.

        Raises:
            TypeError: it is a generator function, whose call does nothing yet.
        """
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("A call of a generator function does nothing yet. Measure the loop that runs through it.")

        @functools.wraps(function)
        def measured(*args: Any, **kwargs: Any) -> Any:
            with self._call(function):
                return function(*args, **kwargs)

        @functools.wraps(function)
        async def measured_later(*args: Any, **kwargs: Any) -> Any:
            with self._call(function):
                return await function(*args, **kwargs)

        return measured_later if inspect.iscoroutinefunction(function) else measured  # type: ignore[return-value]

    @contextlib.contextmanager
    def _call(self, function: Callable[..., object]) -> Iterator[None]:
        one = Measuring(driver=self._driver)  # calls may run in threads, and call themselves
        try:
            with one:
                yield
        finally:
            self._report(replace(one.result, what=getattr(function, "__qualname__", "")))


@overload
def measure(function: F, /) -> F: ...
@overload
def measure(*, driver: bool = True, report: Callable[[Measurement], object] = print) -> Measuring: ...
def measure(
    function: F | None = None, /, *, driver: bool = True, report: Callable[[Measurement], object] = print
) -> F | Measuring:
    """Measure what a block or a function does to GPU memory: its exact peak, what stays, and what the driver gives.

    Each framework's own allocator tells what is in use and the peak (TensorFlow, PyTorch; JAX tells a peak only if
    it is higher than all before), for each logical GPU; the driver tells what it gives this process. Nothing is
    imported or started for it. Measurements may nest, and what TensorFlow's and PyTorch's own functions tell of peaks
    stays as it would be. What other threads of the process do meanwhile counts.

    Args:
        function: the function, if this is a decorator.
        driver: whether the driver is asked before and after, which takes a tenth of a second each time; without it,
            a measurement takes less than a millisecond.
        report: is given the measurement of each call of a function; by default it is printed.

    Returns:
        What measures a block. After it, the figures are ``m.peak``, ``m.delta`` (what stayed) and ``m.held`` (what the
        driver's figure did; None if it is unknown) in bytes, ``m.seconds``, ``m.result.pools`` and
        ``m.result.gpus``. For a function, it is the function in a form that measures each call.

    Examples:
        ``with measure() as m: train(model)``, then ``m.peak / 2**30`` is in GiB; ``@measure`` above ``def``.
    """
    made = Measuring(driver=driver, report=report)
    return made if function is None else made(function)


def _with_driver(measured: Measurement, before: Snapshot, after: Snapshot) -> Measurement:
    """Add the driver's figures to a measurement."""
    trouble = before.error or after.error or ""
    using = {pool.gpu for pool in measured.pools if pool.peak}
    gpus = () if trouble else held_changes(os.getpid(), before, after, using)
    simulated = before.simulated or after.simulated
    return replace(measured, asked=True, gpus=gpus, trouble=trouble, simulated=simulated)
