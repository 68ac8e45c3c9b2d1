"""A simulated machine for this process and its children, with a board of its own, and programs on it to be parked."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.jupyter import Notebook
from tests.parking.house import House, parkable
from tests.parking.made_up import Driver
from tests.parking.notebooks import Site, standing
from tests.processes import kill, ours
from tests.simgpu.talking import Talker, talker
from tests.sizes import GIB
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.parking import client, record
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.messages import ParkOutcome
from tfgpu_magic.parking.record import ParkedProcess
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.simgpu import Machine

PARKER, WORKER = "tfgpu_magic.parking.parker", "tfgpu_magic.parking.driver"


Start = Callable[..., Talker]
"""Starts a program that holds a GiB, or so much, and ends with the test."""


class Asking:
    """A request that is made on a thread."""

    def __init__(self, ask: Callable[..., ParkOutcome], *args: Any, **options: Any) -> None:
        self._done: list[ParkOutcome] = []
        self._trouble: list[BaseException] = []

        def work() -> None:
            try:
                self._done.append(ask(*args, **options))
            except BaseException as error:
                self._trouble.append(error)

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether something came of it."""
        return not self._thread.is_alive()

    def outcome(self) -> ParkOutcome:
        """Wait for what came of it."""
        self._thread.join(60 * SLACK)
        assert not self._thread.is_alive(), "it waits for ever"
        if self._trouble:
            raise self._trouble[0]
        return self._done[0]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with standing(tmp_path_factory) as site:
        yield site


@pytest.fixture(scope="module")
def trained(site: Site) -> Iterator[tuple[Notebook, str]]:
    """Give a notebook that holds most of the GPU, and the digest of its model."""
    with site.trained("train.ipynb") as found:
        yield found


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
def machine(gpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    patient = f"Timeouts.__init__.__kwdefaults__.update(look={15 * SLACK}, state={5 * SLACK}, more={5 * SLACK}); "
    monkeypatch.setattr(client, "CODE", client.CODE.replace("import main; ", f"import Timeouts, main; {patient}"))
    with Machine.create(gpus) as machine:
        for name, value in machine.environ().items():
            monkeypatch.setenv(name, value)
        yield machine
        kill(*helpers(machine))


@pytest.fixture
def programs(machine: Machine) -> Iterator[Start]:
    """Start programs, and end them."""
    with contextlib.ExitStack() as started:
        yield lambda size=GIB: started.enter_context(talker(machine, f"hold({size})"))


def helpers(machine: Machine, module: str = "tfgpu_magic.parking.") -> list[psutil.Process]:
    """Return the helper and its workers on this machine, or those of them that run one module."""
    return ours(machine, module)


@pytest.fixture
def held(machine: Machine) -> Iterator[Talker]:
    """A program that holds 256 MiB, and does what it is told."""
    with talker(machine, "hold(256 * MIB)") as held:
        yield held


def all_die(machine: Machine, pid: int, when: Callable[[], object]) -> None:
    """Have another process ask for a parked one, and kill that and all helpers as soon as something is so."""
    code = "import sys; from tfgpu_magic.parking import client; client.unpark(int(sys.argv[1]))"
    with machine.popen([sys.executable, "-c", code, str(pid)]) as asker:
        until(when)
        asker.kill()
        kill(*helpers(machine))


def only_helper(machine: Machine) -> psutil.Process:
    """Return the helper, once those that came too late have ended."""
    [helper] = until(lambda: helpers(machine, PARKER), lambda found: len(found) == 1, every=0.5)
    return helper


def entry(pid: int) -> ParkedProcess | None:
    """Return what the record says of a process."""
    with BoardDirectory() as place:
        return next((one for one in record.read(place).entries.values() if one.pid == pid), None)


def phase(pid: int) -> Phase | None:
    """Return the phase that the record has of a process."""
    found = entry(pid)
    return None if found is None else found.phase


def park(pid: int, **options: Any) -> ParkOutcome:
    """Park an idle program."""
    return client.park(pid, inside=Inside(), **options)
