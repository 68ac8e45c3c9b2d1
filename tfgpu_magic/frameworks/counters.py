"""Resets a library's peak counters without its user's knowing; `peaks` shares them among those who reset them.

The library's own functions go on to tell what they would without our resets: two of them, the one that tells and the
one that resets, are wrapped for that, as long as the process lives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeAlias

Path: TypeAlias = tuple[object, ...]
"""The keys that lead to figures in what a library tells; ``()`` where it tells one set of them."""


class Counters:
    """The counters of one library. What they tell is a dictionary with ``peak``, or has such ones in it.

    Args:
        holders: returns what has the two functions, the first of which is asked; None where that is not imported.
        tells: the name of the function that tells them.
        resets: the name of the one that resets their peaks.
        pool: returns the pool that the functions' arguments mean.
    """

    def __init__(
        self, holders: Callable[[], Sequence[Any]], tells: str, resets: str, pool: Callable[..., Hashable]
    ) -> None:
        self._holders, self._names, self._pool = holders, (tells, resets), pool
        self._wrapped: Any = None
        self._theirs: list[Callable[..., Any]] = []
        self._others: dict[Hashable, dict[Path, int]] = {}

    @property
    def stats_function(self) -> Callable[..., Any]:
        """The function that tells what is counted of a pool, with the peaks since the last reset by anybody."""
        return self._functions()[0]

    def earlier_peak(self, path: Path, *of: Any) -> int:
        """Return the highest peak of a pool before our resets, and since the last one of others."""
        return self._others.get(self._pool(*of), {}).get(path, 0)

    def reset(self, *of: Any) -> None:
        """Reset a pool's peaks; the library's own functions tell the same of them as before."""
        others = self._others.setdefault(self._pool(*of), {})
        for path, figures in _with_peak(self.stats_function(*of)):
            others[path] = max(figures["peak"], others.get(path, 0))
        self._functions()[1](*of)

    def share(self, between: Callable[[Callable[[], None]], None]) -> None:
        """Run other code's resets through a function, and hide our own resets from it."""
        first = self._holders()[0]
        if (self._wrapped is not None and self._wrapped is first) or not hasattr(first, self._names[0]):
            return
        self._theirs = theirs = self._functions()
        self._wrapped = first

        @functools.wraps(theirs[0])
        def tells(*of: Any, **named: Any) -> Any:
            told = theirs[0](*of, **named)
            others = self._others.get(self._pool(*of, **named), {}) if told else {}
            for path, figures in _with_peak(told):
                figures["peak"] = max(figures["peak"], others.get(path, 0))
            return told

        @functools.wraps(theirs[1])
        def resets(*of: Any, **named: Any) -> None:
            def reset_theirs() -> None:
                theirs[1](*of, **named)
                self._others.pop(self._pool(*of, **named), None)

            between(reset_theirs)

        for holder in self._holders():
            for name, function in zip(self._names, (tells, resets), strict=True):
                setattr(holder, name, function)

    def _functions(self) -> list[Callable[..., Any]]:
        """Return the two functions as they are without us."""
        first = self._holders()[0]
        return self._theirs if self._wrapped is first else [getattr(first, name) for name in self._names]


def _with_peak(told: Any, path: Path = ()) -> Iterator[tuple[Path, dict[str, int]]]:
    """Yield each set of figures that has a peak, with its path."""
    if isinstance(told, dict):
        if isinstance(told.get("peak"), int):
            yield path, told
        else:
            for key, value in told.items():
                yield from _with_peak(value, (*path, key))
