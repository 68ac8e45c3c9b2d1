"""The doctor tells whether processes can be parked here, and tries it with the real TensorFlow where that is wanted."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.doctor import looking
from tests.doctor.looking import look
from tests.doctor.test_memory import V2
from tests.doctor.test_memory import machine as memory_of
from tests.machines import machine_of
from tests.parking.conftest import workers
from tests.parking.house import Driver, House, parkable
from tests.processes import kill
from tests.sizes import CONTEXT, GIB, MIB
from tfgpu_magic.doctor import child
from tfgpu_magic.doctor.machine import ThisMachine as Here
from tfgpu_magic.parking import doctor_check as parking
from tfgpu_magic.parking import facts
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.answers import reasons
from tfgpu_magic.parking.doctor_check import CHUNK
from tfgpu_magic.parking.observation import Observation
from tfgpu_magic.parking.states import CudaState, Phase
from tfgpu_magic.simgpu import Machine

apart = machine_of("1x3GiB", scope="function")
"""A machine that the tests' own process is not on, large enough for a try."""


@pytest.fixture
def gpus() -> str:
    return "1x3GiB"


@pytest.fixture(autouse=True)
def own_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a board of the test's own, and return its directory."""
    folder = tmp_path / "board"
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(folder))
    return folder


def end_workers(machine: Machine) -> None:
    kill(*workers(machine))


def test_a_process_of_tensorflow_goes_and_comes_back_and_the_line_to_send_says_so(apart: Machine) -> None:
    apart.set_checkpoints(out=0.5, back=1.0)
    done = looking.doctor(apart, "--park", "--json")
    end_workers(apart)
    seen = Observation.from_line(done.stdout)

    assert (done.returncode, seen.question, seen.answer, seen.why) == (0, "parks", "yes", ())
    assert (seen.gpu, seen.gpus, seen.driver, seen.module) == ("Simulated GPU 3GiB", 1, "580.00.00", "simulated")
    assert seen.framework == f"tensorflow {metadata.version('tensorflow')}"
    assert (seen.held or 0) >= 5 * CHUNK + CONTEXT
    assert ((seen.out or 0) <= 0.51e9, (seen.back or 0) <= 1.02e9) == (True, True)
    assert apart.held() == 0


@pytest.mark.parametrize(
    ("change", "answer", "why"),
    [
        (lambda machine: machine.remove_driver(), "skipped", ()),
        (lambda machine: machine.set_driver("595.71.05", open_module=True), "refused", ("open-module",)),
        (lambda machine: machine.fault("cuCheckpointProcessCheckpoint", 801), "refused",
         ("declined cuCheckpointProcessCheckpoint 801",)),
    ],
)  # fmt: skip
def test_what_is_sent_says_why_not_in_names_and_has_nothing_of_the_user(
    machine: Machine, change: Callable[[Machine], object], answer: str, why: tuple[str, ...]
) -> None:
    change(machine)
    here = Here(park=True)
    line = parking.report(here, parking.parking(here))
    end_workers(machine)
    seen = Observation.from_line(line)

    assert (seen.answer, seen.why) == (answer, why)
    assert [word for word in ("/", os.uname().nodename, str(os.getpid())) if word in line] == []


def test_without_being_asked_it_tries_nothing(machine: Machine, own_board: Path) -> None:
    assert look("parking").names == ["parking.not-tried"]
    assert machine.held() == 0
    assert not own_board.exists()
    machine.add_foreign("2.7GiB@0")  # a full GPU is no reason: no process was there that could not return
    assert look("parking").names == ["parking.not-tried"]


@pytest.mark.parametrize(
    ("change", "options", "names"),
    [
        (lambda machine: machine.remove_driver(), {"park": True}, []),
        (lambda machine: machine.hide_memory(), {"park": False}, ["unlisted"]),
        (lambda machine: machine.hide_memory(), {"park": True}, ["unlisted"]),
        (lambda machine: machine.set_driver("595.71.05", open_module=True), {"park": True}, ["open-module"]),
        (lambda machine: machine.set_driver("595.71.05", open_module=True), {"allow_open_module": True}, ["not-tried"]),
    ],
)
def test_where_it_could_not_work_or_is_not_allowed_nothing_is_tried(
    machine: Machine, change: Callable[[Machine], object], options: dict[str, Any], names: list[str]
) -> None:
    change(machine)

    assert look("parking", here=Here(**options)).names == [f"parking.{name}" for name in names]


@pytest.mark.parametrize(
    ("version", "open_module", "names"),
    [
        ("570.86.10", False, ["old-driver"]),
        ("595.71.05", False, ["not-tried"]),
        ("595.71.05", True, ["open-module"]),
        ("610.43.02", False, ["not-tried"]),
    ],
)
def test_what_speaks_against_it_on_this_machine_is_told_in_parkings_own_words(
    machine: Machine, version: str, open_module: bool, names: list[str]
) -> None:
    machine.set_driver(version, open_module=open_module)
    report = look("parking")

    assert report.names == [f"parking.{name}" for name in names]
    assert (names[0] not in why.REASONS) or report.rows[0]["found"] == reasons(
        [why.REASONS[names[0]](*report.rows[0]["facts"].values())]
    )


@pytest.mark.parametrize(
    ("gpus", "name"),
    [("40GiB:mig=2", "mig"), ("40GiB:mode=exclusive", "exclusive"), ("8GiB:mode=prohibited", "exclusive")],
)
@pytest.mark.usefixtures("machine")
def test_a_gpu_that_cannot_be_parked_on_is_named_once(name: str) -> None:
    report = look("parking", here=Here(park=True))

    assert report.names == [f"parking.{name}"]
    assert report.facts(f"parking.{name}")["gpu"] == "0"


@pytest.mark.usefixtures("machine")
def test_where_host_memory_is_short_the_figures_are_told(tmp_path: Path) -> None:
    files = {"user/memory.max": 2 * GIB, "user/memory.current": GIB}
    here = memory_of(tmp_path / "root", V2, files)
    (tmp_path / "root/proc/self").rename(tmp_path / f"root/proc/{psutil.Process().pid}")
    report = look("parking", here=Here(here.root, park=True))

    assert report.names == ["parking.host-memory"]
    assert report.facts("parking.host-memory") == {
        "needed_bytes": GIB + CONTEXT, "left_bytes": 0
    }  # fmt: skip


@pytest.mark.parametrize(("visible", "neighbour"), [("0", "2GiB@0"), ("-1", None)])
def test_without_a_gpu_that_cuda_shows_and_that_has_room_it_is_not_tried(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, visible: str, neighbour: str | None
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    if neighbour is not None:
        machine.add_neighbour(neighbour)
    held = machine.held()

    assert look("parking", here=Here(park=True)).names == ["parking.untried"]
    assert machine.held() == held


def test_what_the_driver_declines_is_told_with_its_call(machine: Machine) -> None:
    machine.fault("cuCheckpointProcessCheckpoint", 801)
    report = look("parking", here=Here(park=True))
    end_workers(machine)

    assert report.names == ["parking.refused"]
    assert report.facts("parking.refused")["reasons"] == (
        "The driver has declined it (cuCheckpointProcessCheckpoint: 801)."
    )
    assert machine.held() == 0


def test_under_the_open_module_a_process_that_came_back_ends_parked_and_the_machine_goes_on(apart: Machine) -> None:
    apart.set_driver("595.71.05", open_module=True)
    done = looking.doctor(apart, "--allow-open-module", "--json")
    seen = Observation.from_line(done.stdout)

    assert (seen.answer, seen.why, seen.module) == ("yes", (), "simulated")
    assert (apart.hung(), apart.held()) == (False, 0)


@pytest.mark.parametrize("phase", [Phase.BACK, Phase.RESTORING])
def test_under_the_open_module_whatever_fails_once_it_came_back_it_ends_parked(
    monkeypatch: pytest.MonkeyPatch, phase: Phase
) -> None:
    with parkable():
        house = House(Driver())
        house.park()

        def fails(*_: object, **__: object) -> None:
            if phase is Phase.BACK:
                house.unpark()
                raise ValueError("no checksum")
            house.state.move(phase)
            house.driver.state = CudaState.LOCKED

        for place, name, value in (
            (facts, "open_module", lambda: True), (os, "_exit", sys.exit),
            (parking, "GpuState", lambda _: house.state), (parking, "_answer", fails),
        ):  # fmt: skip
            monkeypatch.setattr(place, name, value)
        with pytest.raises(SystemExit) as ended:
            parking.main(None, GIB, allow_open_module=True)

    assert (ended.value.code, house.phase) == (int(phase is Phase.BACK), Phase.PARKED)
    assert house.driver.state is CudaState.CHECKPOINTED


GONE = {"step": "compare", "refusals": [], "size": GIB, "held": 0, "out": 0.5, "back": 0.25, "same": True}


@pytest.mark.parametrize(
    ("answered", "outcome", "said"),
    [
        ({}, "works", "its 1 GiB left GPU 0 in 0.5 s, 2 GiB/s, and came back in 0.25 s, 4 GiB/s."),
        ({"same": False}, "changed", "with other contents"),
        ({"held": 64 * MIB}, "stayed", "still listed 64 MiB of it on GPU 0."),
        ({"step": "unpark", "refusals": [why.to_json(why.CANCELLED())]}, "crowded", "others took the room"),
        (
            {"step": "unpark", "refusals": [why.to_json(why.DECLINED("restore", 2)), why.to_json(why.LOST())]},
            "lost",
            "did not come back. The driver has declined it (restore: 2). Its GPU state cannot be had back",
        ),
    ],
)
def test_what_a_try_has_come_to_is_told_for_what_it_is(answered: dict[str, Any], outcome: str, said: str) -> None:
    finding = parking._judged("0", GONE | answered)

    assert finding.outcome.name == f"parking.{outcome}"
    assert said in finding.found


@pytest.mark.parametrize("code", ["raise ImportError('numpy is too new')", "import time; time.sleep(3600)"])
def test_a_process_that_does_not_answer_is_given_up(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    here = Here(park=True)
    assert here.cuda is not None
    (tmp_path / "tensorflow.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    if "sleep" in code:
        monkeypatch.setattr(child, "IMPORTING", 1.0)
        monkeypatch.setattr(parking, "COPYING", 0.0)

    assert look("parking", here=here).names == ["parking.ended"]
    assert machine.held() == 0
