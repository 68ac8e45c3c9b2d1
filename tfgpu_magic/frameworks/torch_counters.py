"""PyTorch's peak counters, several for each GPU; `peaks` shares them among those who reset them.

PyTorch's own functions go on to tell what they would without our resets: two functions of its module are wrapped for
that, as long as the process lives. Source: PyTorch 2.13, `torch/cuda/memory.py`: all figures of `torch.cuda` come from
the first of the two, and all its resets of peaks go to the second. `torch.accelerator` asks the allocator by itself: a
reset through it is not seen, and what it tells is since the last reset by anybody.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_STATS, _RESET = "memory_stats_as_nested_dict", "reset_peak_memory_stats"


class _Theirs(NamedTuple):
    """The functions of `torch.cuda` as they are without us, and that module."""

    cuda: Any
    stats: Callable[..., Any]
    reset: Callable[..., Any]


_wrapped: _Theirs | None = None

_others: dict[int, dict[tuple[object, ...], int]] = {}
"""The most that was counted before our resets, and since the last one of others: by GPU, by the figure's path."""


class Counted(NamedTuple):
    """What PyTorch counts of a GPU, in bytes.

    Attributes:
        allocated: what is allocated now.
        reserved: what it has of the driver.
        peak: the most that was allocated at once, as its own functions tell it.
        counted: the most since the last reset by anybody.
        touched: whether it has ever taken memory of the GPU.
    """

    allocated: int
    reserved: int
    peak: int
    counted: int
    touched: bool


def read(number: int) -> Counted:
    """Return what is counted of a GPU."""
    stats = _functions().stats(number)
    allocated, reserved = (stats[name]["all"] for name in ("allocated_bytes", "reserved_bytes"))
    others = _others.get(number, {}).get(("allocated_bytes", "all"), 0)
    return Counted(
        allocated=allocated["current"],
        reserved=reserved["current"],
        peak=max(allocated["peak"], others),
        counted=allocated["peak"],
        touched=bool(reserved["peak"]),
    )


def reset(number: int) -> None:
    """Reset the peaks of a GPU; PyTorch's own functions tell the same of them as before."""
    others = _others.setdefault(number, {})
    for path, figures in _with_peak(_functions().stats(number)):
        others[path] = max(figures["peak"], others.get(path, 0))
    _functions().reset(number)


def share(between: Callable[[Callable[[], None]], None]) -> None:
    """Have the resets of others done by a function, and keep from them that there are ours."""
    global _wrapped  # a process has one such module
    if (_wrapped is not None and _wrapped.cuda is _cuda()) or not hasattr(_cuda(), _STATS):
        return
    theirs = _functions()

    def memory_stats_as_nested_dict(device: Any = None) -> Any:
        stats = theirs.stats(device)
        others = _others.get(_index(device), {}) if stats else {}
        for path, figures in _with_peak(stats):
            figures["peak"] = max(figures["peak"], others.get(path, 0))
        return stats

    def reset_peak_memory_stats(device: Any = None) -> None:
        def reset_theirs() -> None:
            theirs.reset(device)
            _others.pop(_index(device), None)

        between(reset_theirs)

    # PyTorch's own functions look for them in the first module, and people in the second.
    for module in (sys.modules.get("torch.cuda.memory"), _cuda()):
        if module is not None:
            setattr(module, _STATS, memory_stats_as_nested_dict)
            setattr(module, _RESET, reset_peak_memory_stats)
    _wrapped = theirs


def _functions() -> _Theirs:
    cuda = _cuda()
    if _wrapped is not None and _wrapped.cuda is cuda:
        return _wrapped
    return _Theirs(cuda, getattr(cuda, _STATS), getattr(cuda, _RESET))


def _with_peak(stats: Any, path: tuple[object, ...] = ()) -> Iterator[tuple[tuple[object, ...], dict[str, int]]]:
    """Give each set of figures that has a peak, with its path."""
    if isinstance(stats, dict):
        if isinstance(stats.get("peak"), int):
            yield path, stats
        else:
            for key, value in stats.items():
                yield from _with_peak(value, (*path, key))


def _index(device: Any) -> int:
    """Return the number of a device in any way to say it: None, 1, ``"cuda:1"``, `torch.device`."""
    if isinstance(device, int):
        return device
    index = None if device is None else sys.modules["torch"].device(device).index
    return int(_cuda().current_device()) if index is None else int(index)


def _cuda() -> Any:
    return getattr(sys.modules.get("torch"), "cuda", None)
