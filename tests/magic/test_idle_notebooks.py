"""What does not fit names the idle notebook whose parking would make it fit, and the line that parks it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.jupyter import LEAN, Notebook, Server, serving
from tests.parking.notebooks import PATIENT
from tests.server.conftest import ENABLED, ROOT
from tests.sizes import GIB
from tests.waiting import until
from tfgpu_magic.engine.other_processes import OtherProcesses
from tfgpu_magic.errors import Refused
from tfgpu_magic.model.report import Report
from tfgpu_magic.model.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.parking import facts, idle_notebooks
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOLDS = f"from tests.simgpu.on_machine import allocate; print(allocate({4 * GIB}))"
LINE = "%tf_gpu limit 5GiB"


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with Machine.create("1x8GiB") as machine:
        yield machine


@pytest.fixture(scope="module")
def server(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home: Path = tmp_path_factory.mktemp("home")
    environment = {"TFGPU_MAGIC_DIR": str(home / "board"), "PYTHONPATH": f"{ROOT}:{LEAN}"}
    with serving(machine, home, options=[ENABLED], environment=environment) as server:
        yield server


def notebook(server: Server, path: str, *cells: str) -> Notebook:
    made = Notebook(server, path)
    for cell in ("%load_ext tfgpu_magic", PATIENT, *cells):
        made.run(cell)
    return made


@pytest.fixture
def idle(server: Server) -> Iterator[Notebook]:
    made = notebook(server, "eval.ipynb", '%config TfGpuMagics.parking = "ask"', HOLDS)
    yield made
    end(server, made)


@pytest.fixture
def asking(server: Server) -> Iterator[Notebook]:
    made = notebook(server, "train.ipynb")
    yield made
    end(server, made)


def end(server: Server, made: Notebook) -> None:
    made.client.stop_channels()
    server.delete(f"api/sessions/{made.session}")


def said(asking: Notebook, line: str) -> str:
    """Run a line; return all that it says."""
    heard: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        content = message["content"]
        heard.append(content.get("text") or content.get("data", {}).get("text/plain", "") or content.get("evalue", ""))

    asking.client.execute_interactive(line, output_hook=hear, allow_stdin=False)
    return "\n".join(heard)


def refused(asking: Notebook) -> str:
    """Return the refusal that names the idle notebook, once its report is there."""
    return until(lambda: said(asking, LINE), lambda text: "eval.ipynb" in text and "runs no cell" in text)


def test_it_is_named_and_the_line_that_is_named_parks_it(machine: Machine, idle: Notebook, asking: Notebook) -> None:
    text = refused(asking)
    assert "eval.ipynb (4." in text
    assert "parked, it would make room, keep its state, and come back with its next cell." in text
    assert "`%tf_gpu park eval.ipynb` parks it." in text
    assert machine.held(pid=idle.pid) > 0

    assert "eval.ipynb is parked: 4." in said(asking, "%tf_gpu park eval.ipynb")
    assert machine.held(pid=idle.pid) == 0
    assert "waits for TensorFlow's import" in said(asking, LINE)


def test_whatever_finds_no_room_names_it_too(
    machine: Machine, server: Server, idle: Notebook, asking: Notebook
) -> None:
    refused(asking)
    for words in ("pick --need 6GiB", "pick --need 6GiB; limit 5GiB"):
        text = said(asking, f"%tf_gpu {words}")
        assert "eval.ipynb (4." in text
        assert "`%tf_gpu park eval.ipynb` parks it." in text
    planned = said(asking, f"%tf_gpu plan {LINE.removeprefix('%tf_gpu ')}")
    assert "eval.ipynb (4." in planned

    call = said(asking, "%%tf_gpu isolate --gpus 1 limit 5GiB\nprint(1)")
    assert "Not started." in call
    assert "eval.ipynb (4." in call
    assert "`%tf_gpu park eval.ipynb` parks it." in call

    board = {"TFGPU_MAGIC_DIR": str(server.home / "board")}
    command = [sys.executable, "-m", "tfgpu_magic", "run", "limit 5GiB", "--", "-c", "print(1)"]
    program = machine.run(command, env=board, capture_output=True, text=True)
    assert program.returncode == 75
    assert "eval.ipynb (4." in program.stderr
    assert "Its button in the panel parks it, and so does the magic's word `park` in it." in program.stderr


GPUS = tuple(Gpu(index=at, uuid=f"GPU-{at}", total=8 * GIB, used=8 * GIB, free=0) for at in (0, 1))


def report(pid: int, *, active: float = 0.0, busy: bool | None = False, parks: bool = True) -> Report:
    return Report(pid=pid, summary="", notebook=f"lab/{pid}.ipynb", busy=busy, active=active, parks=parks)


@pytest.fixture(autouse=True)
def owned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the pids of the reports be this user's."""
    monkeypatch.setattr(facts, "owned", lambda pid: pid < 9)


def named(size: int, reports: list[Report], held: dict[int, int], gpu: int = 0) -> str:
    """Return what a refusal gets where so many bytes of a GPU must be free; pid 8 holds what others leave of the first.

    All of them are this user's, but for pid 9.
    """
    held = {8: 8 * GIB - sum(held.values()), **held}
    rows = tuple(Process(gpu="0", pid=pid, kind="C", held=each) for pid, each in held.items())
    error = Refused("Full.")

    def fits(then: Snapshot, others: OtherProcesses) -> bool:
        assert {row.pid for row in then.processes} == held.keys() - others.parked
        if (then.gpus[gpu].free or 0) < size:
            raise Refused("Still full.")
        return True

    idle_notebooks.name_one(
        error, Snapshot(time=7300.0, gpus=GPUS, processes=rows), OtherProcesses(tuple(reports)), fits
    )
    return error.reason.removeprefix("Full.").strip()


def test_of_several_that_are_enough_it_is_the_longest_idle() -> None:
    reports = [report(1, active=50.0), report(2, active=20.0), report(3, active=10.0)]
    held = {1: 4 * GIB, 2: 4 * GIB, 3: GIB}

    assert named(4 * GIB, reports, held).startswith(
        "2.ipynb (4 GiB, idle 2 h) runs no cell: parked, it would make room"
    )
    assert named(GIB, reports, held).startswith("3.ipynb (1 GiB, idle 2 h)")


@pytest.mark.parametrize("one", [report(1, busy=True), report(1, busy=None), report(1, parks=False), report(2)])
def test_one_that_is_busy_does_not_allow_it_or_holds_nothing_is_not_named(one: Report) -> None:
    assert named(GIB, [one], {1: 4 * GIB}) == ""


def test_a_refusal_that_parking_does_not_help_is_as_it_was() -> None:
    assert named(8 * GIB, [report(1)], {1: 4 * GIB}) == ""
    assert named(GIB, [report(1)], {1: 4 * GIB}, gpu=1) == ""


def test_one_that_would_not_be_parked_since_it_could_not_come_back_is_not_named() -> None:
    assert named(GIB, [report(1)], {1: 4 * GIB, 9: 4 * GIB}) == ""
    assert named(GIB, [report(1)], {1: 4 * GIB, 2: 4 * GIB}).startswith("1.ipynb")


@pytest.mark.parametrize(
    ("host", "said"), [("program", "the magic's word `park` in it"), ("kernel", "`%tf_gpu park 1.ipynb` parks it.")]
)
def test_a_program_is_told_where_to_say_it(monkeypatch: pytest.MonkeyPatch, host: str, said: str) -> None:
    monkeypatch.setattr(idle_notebooks, "host", lambda: host)

    assert said in named(GIB, [report(1)], {1: 4 * GIB})
