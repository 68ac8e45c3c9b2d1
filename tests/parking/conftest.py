"""A simulated machine for this process and its children, with a board of its own, and programs on it to be parked."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.jupyter import Notebook, serving
from tests.parking.house import IDLE, Driver, House, parkable
from tests.parking.notebooks import Site, home, seen
from tests.processes import kill, ours
from tests.simgpu.talking import Talker, talker
from tests.sizes import GIB, MIB
from tests.slack import SLACK
from tfgpu_magic.leases.lease_file import LeaseFile
from tfgpu_magic.parking import reported
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.gpu_state import Asker, GpuState, Timeouts
from tfgpu_magic.parking.messages import ParkOutcome, Progress
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.parking.transfers import Park, Unpark
from tfgpu_magic.simgpu import Machine

PARKS = """
from tfgpu_magic.parking.gpu_state import *; from tfgpu_magic.parking.transfers import *
from tfgpu_magic.parking.checks import Inside; from tfgpu_magic.leases.lease_file import TABLE
def told(known):
    Path(os.environ["TFGPU_SIMGPU"] + ".phase").write_text("" if known is None else known.phase.value)
own = GpuState(os.getpid(), told, timeouts=Timeouts(look=60.0))
def away():
    return Park(own, Inside()).park().done
def back():
    return Unpark(own, TABLE).unpark().done
def turns(times):
    return [back() and intact() and away() for _ in range(times)]
"""
"""What makes a program able to park itself, as kernels do; a file tells its phase."""
PATIENT = Timeouts(look=15 * SLACK, state=5 * SLACK, copy=30 * SLACK)  # as long as a busy machine takes
Tell = Callable[[Progress], object]
Start = Callable[..., Talker]  # starts a program that holds a GiB, or so much, and ends with the test


class Asking:
    """A request that is made on a thread."""

    def __init__(self, ask: Callable[..., ParkOutcome], *args: Any, **options: Any) -> None:
        self._came = Future[ParkOutcome]()

        def work() -> None:
            try:
                self._came.set_result(ask(*args, **options))
            except BaseException as error:
                self._came.set_exception(error)

        threading.Thread(target=work, daemon=True).start()

    @property
    def done(self) -> bool:
        return self._came.done()

    def outcome(self) -> ParkOutcome:
        """Wait for what came of it, but not for ever."""
        return self._came.result(60 * SLACK)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("home")
    with seen("1x8GiB", tmp_path_factory.mktemp("board")) as machine, serving(machine, home(folder)) as server:
        yield Site(machine, server)


@pytest.fixture(scope="module")
def trained(site: Site) -> Iterator[tuple[Notebook, str]]:
    """Give a notebook that holds most of the GPU, and the digest of its model."""
    with site.trained("train.ipynb") as found:
        yield found


@pytest.fixture(scope="module")
def notebook(trained: tuple[Notebook, str]) -> Notebook:
    return trained[0]


@pytest.fixture(scope="module")
def digest(trained: tuple[Notebook, str]) -> str:
    return trained[1]


@pytest.fixture
def house() -> Iterator[House]:
    """Give the state of this process, where it may be parked."""
    with parkable():
        yield House(Driver())


@pytest.fixture
def gpus() -> str:
    """The machine's GPUs; tests parametrize it where they need others."""
    return "1x2GiB"


@pytest.fixture
def machine(gpus: str, tmp_path: Path) -> Iterator[Machine]:
    _states.clear()
    with seen(gpus, tmp_path) as machine:
        yield machine
        for one in _states.values():
            one.rest()
        _states.clear()
        kill(*workers(machine))


@pytest.fixture
def programs(machine: Machine) -> Iterator[Start]:
    with contextlib.ExitStack() as started:
        yield lambda size=GIB: started.enter_context(talker(machine, f"hold({size})"))


def workers(machine: Machine) -> list[psutil.Process]:
    return ours(machine, "tfgpu_magic.parking.driver")


@pytest.fixture
def held(machine: Machine) -> Iterator[Talker]:
    """A program that holds 256 MiB, and does what it is told."""
    with talker(machine, "hold(256 * MIB)") as held:
        yield held


def on_its_own(machine: Machine, size: int = 256 * MIB) -> contextlib.AbstractContextManager[Talker]:
    """Start a program that holds so much, and parks itself by a worker of its own."""
    return talker(machine, f"hold({size})", f"exec({PARKS!r}, globals())")


def own_phase(machine: Machine) -> str:
    return Path(f"{machine.path}.phase").read_text()


_states: dict[int, GpuState] = {}
TABLE = LeaseFile()


def state(pid: int) -> GpuState:
    """Return the GPU state of a program, which is moved here as a process does it for itself."""
    if pid not in _states:
        _states[pid] = GpuState(pid, timeouts=PATIENT)
    return _states[pid]


def phase(pid: int) -> Phase | None:
    """Return the phase of a program, or the one that a notebook reports."""
    found = _states[pid].known if pid in _states else reported.parked(pid)
    return None if found is None else found.phase


def park(pid: int, inside: Inside = IDLE, tell: Tell = lambda _: None) -> ParkOutcome:
    return Park(state(pid), inside, asker=Asker(tell)).park()


def unpark(pid: int, tell: Tell = lambda _: None, wanted: Callable[[], bool] = lambda: True) -> ParkOutcome:
    return Unpark(state(pid), TABLE, asker=Asker(tell, wanted)).unpark()
