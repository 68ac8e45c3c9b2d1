"""Finds what only this process can say of itself before it is parked: a running cell, threads, NCCL, shared memory."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

from tfgpu_magic.frameworks import cuda, registry
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.inside import event_loop, ipython, threads
from tfgpu_magic.probe import within

_MAPS = Path("/proc/self/maps")

_finishing: list[threading.Thread] = []
"""Those that still wait for the GPUs, which only means that these work: /proc can be read all the same."""


def read(shell: Any, cannot_be_held: tuple[str, ...]) -> Inside:
    """Return what this process says of itself.

    Args:
        shell: IPython's shell.
        cannot_be_held: what was found when the gate was closed.
    """
    running = hasattr(shell, "kernel") and any(map(event_loop.runs_cell, ipython.loops(shell.kernel)))
    return Inside(
        busy=running or threads.cell_runs(),
        threads=cannot_be_held,
        nccl=_nccl(),
        # Whether PyTorch has sent GPU memory to another process, or got some of one.
        shared=bool(getattr(sys.modules.get("torch.multiprocessing.reductions"), "shared_cache", None)),
    )


def quieten(finish: float, report: float) -> why.Refusal | None:
    """Wait until the GPUs have done all that this process has asked for, and have nothing of ours ask for more.

    Args:
        finish: seconds that the GPUs may take.
        report: seconds that a report of ours may take.

    Returns:
        Why they may still be at work; None where they are not.
    """

    def work() -> bool:
        registry.finish()
        return True

    try:
        done = within(finish, work, _finishing)
    except Exception as error:  # the user's own, of an operation that was still to be done: they are yet to see it
        return why.FAILED(str(error) or type(error).__name__)
    if not done:
        return why.STILL_WORKING(finish)
    return None if cuda.quieten(report) else why.STILL_WORKING(report)


def _nccl() -> bool:
    """Tell whether NCCL may have started: TensorFlow and JAX load it only then, and PyTorch always has it loaded."""
    try:
        maps = _MAPS.read_text(encoding="utf-8", errors="replace")
    except OSError:  # a process that may not be looked into; whoever cannot know must not park it
        return True
    if "libnccl" not in maps:
        return False
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None:
        return True
    return bool(distributed.is_available() and distributed.is_initialized()) or len(cuda.contexts()) > 1
