"""The machine that the demo and the notebooks' committed outputs are shown on: four GPUs, two of them in use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tfgpu_magic.simgpu import Machine


@contextmanager
def simulated() -> Iterator[Machine]:
    """Make the simulated machine, and its neighbours: a notebook of one's own, and somebody else's program."""
    with Machine.create("4x16GiB") as machine:
        with named("train.ipynb"):
            machine.add_neighbour("9GiB@1")
        machine.add_foreign("12GiB@2")
        yield machine


@contextmanager
def named(name: str) -> Iterator[None]:
    """Let what is started here pass for the kernel of a notebook: Jupyter Server gives kernels this variable."""
    before = os.environ.get("JPY_SESSION_NAME")
    os.environ["JPY_SESSION_NAME"] = name
    try:
        yield
    finally:
        del os.environ["JPY_SESSION_NAME"]
        if before is not None:
            os.environ["JPY_SESSION_NAME"] = before
