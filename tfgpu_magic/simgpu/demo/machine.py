"""The machine that demos, pages and committed outputs are shown on: four GPUs, two of them in use."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from itertools import cycle

from tfgpu_magic.errors import SimulatorError
from tfgpu_magic.ground.process_kind import SIMULATED_USER
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.simgpu.neighbours import Holder

OTHER = "maria"
"""What the owner of the other program is called."""

EVERY = 3.0
"""Seconds between two moves of the other program."""

_MOVES = ("12GiB", "10GiB", "8GiB", "9GiB", "11GiB")
"""What it holds in turn. The notebook's 9 GiB stay: the tour and the exercises in docs/teachers.md name them."""


@contextmanager
def simulated_machine(*, moving: bool = False) -> Iterator[Machine]:
    """Make the simulated machine, and its neighbours: a notebook of one's own, and somebody else's program.

    Args:
        moving: whether the other program takes memory and gives it back, as long as this goes on.
    """
    with Machine.create("4x16GiB") as machine, ExitStack() as stack, _variable(SIMULATED_USER, OTHER):
        with as_notebook("train.ipynb"):
            machine.add_neighbour("9GiB@1", name=KERNEL)
        other = machine.add_foreign("12GiB@2")
        if moving:
            ended = threading.Event()
            mover = threading.Thread(target=_move, args=(other, ended))
            mover.start()
            stack.callback(mover.join)
            stack.callback(ended.set)
        yield machine


def _move(other: Holder, ended: threading.Event) -> None:
    for size in cycle(_MOVES):
        with suppress(SimulatorError):  # somebody has taken the room, or stopped it
            other.resize(size)
        if ended.wait(EVERY):
            return


KERNEL = "python -m ipykernel_launcher -f kernel-1.json"
"""A command line by which a process passes for a kernel."""


def as_notebook(name: str) -> AbstractContextManager[None]:
    """Set the variable that Jupyter Server sets for a kernel, so that programs started here count as a notebook's."""
    return _variable("JPY_SESSION_NAME", name)


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before
