"""What isolated calls are tested on: a machine for all, a fork server that warms up in a moment, nothing left over."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import psutil
import pytest

from tests.isolate.notebook import Notebook, notebook
from tests.isolate.rig import belongings
from tfgpu_magic.isolate.process.forkserver_client import FORK_SERVER, PRELOAD
from tfgpu_magic.simgpu import Machine


@pytest.fixture(scope="module")
def quick() -> Iterator[None]:
    """Calls without TensorFlow, for the tests of one module."""
    FORK_SERVER.stop()
    FORK_SERVER.preload = ("numpy", "tfgpu_magic.engine.engine", "tests.isolate.deeds")
    yield
    FORK_SERVER.preload = PRELOAD
    FORK_SERVER.stop()


@pytest.fixture
def light(quick: None) -> Iterator[None]:
    """Calls without TensorFlow; afterwards no process of theirs lives and no descriptor or thread of theirs is left."""
    server = FORK_SERVER.process()
    process = server.start()
    process.read_status()  # which waits until it is warm
    process.close()
    gc.collect()  # what earlier tests have left would go in the midst of this one
    before, threads = belongings()
    yield
    # A call that was interrupted before it had a process may still get one, which ends at once.
    deadline, quiet = time.monotonic() + 60.0, 0
    while quiet < 10 and time.monotonic() < deadline:
        time.sleep(0.005)
        now, running = belongings()
        own = now.items() <= before.items() and running <= threads
        own = own or FORK_SERVER.process() is not server  # then it was the test's to end it
        quiet = quiet + 1 if own and not psutil.Process(FORK_SERVER.process().pid).children() else 0
    assert quiet, "a process, a descriptor or a thread was left"


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    """The machine of the notebook."""
    with Machine.create("1x8GiB") as machine:
        yield machine


@pytest.fixture(scope="session")
def warm(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """A notebook for all tests, which has run an isolated cell: the next is quick."""
    with notebook(machine, tmp_path_factory.mktemp("home")) as one:
        one.isolated("pass")
        yield one


@pytest.fixture(scope="module")
def book(warm: Notebook) -> Notebook:
    """The notebook, with nothing of another module's tests."""
    warm.run("%reset -f")
    return warm
