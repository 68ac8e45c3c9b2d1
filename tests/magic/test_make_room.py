"""A policy that does not fit names the idle notebook that could make room, and `--make-room` parks it after asking."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.jupyter import Notebook, Server, open_notebook, serving
from tests.parking.notebooks import PATIENT
from tests.server.conftest import ENABLED, ROOT
from tests.sizes import GIB
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic import make_room
from tfgpu_magic.config.making_room import Idle
from tfgpu_magic.errors import Refused
from tfgpu_magic.monitor.snapshot import Snapshot
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
    environment = {"TFGPU_MAGIC_DIR": str(home / "board"), "PYTHONPATH": str(ROOT)}
    with serving(machine, home, options=[ENABLED], environment=environment) as server:
        yield server


def notebook(server: Server, path: str, *cells: str) -> Notebook:
    made = open_notebook(server, path)
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
    server.open(f"api/sessions/{made.session}", method="DELETE").close()


def said(asking: Notebook, line: str, answer: str | None = None) -> str:
    """Run a line and answer what it asks; return all that it says, and what it asks."""
    heard: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        content = message["content"]
        heard.append(content.get("text") or content.get("data", {}).get("text/plain", "") or content.get("evalue", ""))

    def asked(message: dict[str, Any]) -> None:
        heard.append(message["content"]["prompt"])
        asking.client.input(answer or "")

    options: dict[str, Any] = {"allow_stdin": answer is not None, "timeout": 120 * SLACK, "output_hook": hear}
    asking.client.execute_interactive(line, **options, stdin_hook=asked)
    return "\n".join(heard)


def refused(asking: Notebook) -> str:
    """Return the refusal that names the idle notebook, once its report is there."""
    return until(lambda: said(asking, LINE), lambda text: "eval.ipynb" in text and "runs no cell" in text)


def test_it_is_named_and_parked_only_after_yes(machine: Machine, idle: Notebook, asking: Notebook) -> None:
    held = machine.held(pid=idle.pid)
    text = refused(asking)
    assert "eval.ipynb (4." in text
    assert "parked, it would make room, keep its state, and come back with its next cell." in text
    assert f"{LINE} --make-room" in text

    no = said(asking, f"{LINE} --make-room", "n")
    assert no.count("Park eval.ipynb to make room? [y/N]") == 1
    assert "Not applied. Nothing was parked." in no
    assert machine.held(pid=idle.pid) == held

    yes = said(asking, f"{LINE} --make-room", "y")
    assert "eval.ipynb is parked: 4." in yes
    assert "`limit 5 GiB`" in yes or "`limit 5GiB`" in yes
    assert machine.held(pid=idle.pid) == 0


def test_where_nobody_can_be_asked_nothing_is_parked(machine: Machine, idle: Notebook, asking: Notebook) -> None:
    held = machine.held(pid=idle.pid)
    refused(asking)

    assert "Nobody can be asked here whether to park eval.ipynb" in said(asking, f"{LINE} --make-room")
    assert machine.held(pid=idle.pid) == held > 0


def test_a_busy_one_and_one_that_does_not_allow_it_are_not_named(server: Server, asking: Notebook) -> None:
    shy = notebook(server, "shy.ipynb", HOLDS)
    try:
        text = said(asking, f"{LINE} --make-room", "y")

        assert "Not applied." in text
        assert "No idle notebook of yours could make room" in text
        assert "[y/N]" not in text
    finally:
        end(server, shy)


def test_where_it_fits_nobody_is_asked(idle: Notebook, asking: Notebook) -> None:
    text = said(asking, "%tf_gpu limit 1GiB --make-room", "y")

    assert "[y/N]" not in text
    assert "limit 1" in text


def test_whatever_finds_no_room_names_it_too(
    machine: Machine, server: Server, idle: Notebook, asking: Notebook
) -> None:
    refused(asking)
    for words in ("pick --need 6GiB", "pick --need 6GiB; limit 5GiB"):
        text = said(asking, f"%tf_gpu {words}")
        assert "eval.ipynb (4." in text
        assert f"%tf_gpu {words} --make-room" in text
    planned = said(asking, f"%tf_gpu plan {LINE.removeprefix('%tf_gpu ')}")
    assert "eval.ipynb (4." in planned

    call = said(asking, "%%tf_gpu isolate --gpus 1 limit 5GiB\nprint(1)")
    assert "Not started." in call
    assert "eval.ipynb (4." in call
    assert "`%tf_gpu park NAME` parks one." in call

    board = {"TFGPU_MAGIC_DIR": str(server.home / "board")}
    command = [sys.executable, "-m", "tfgpu_magic", "run", "limit 5GiB", "--", "-c", "print(1)"]
    program = machine.run(command, env=board, capture_output=True, text=True)
    assert program.returncode == 2
    assert "eval.ipynb (4." in program.stderr
    assert "Its button in the panel parks one, and so does the magic's word `park` in it." in program.stderr


@pytest.mark.parametrize(
    ("line", "why"), [("%tf_gpu --make-room", "for what?"), ("%tf_gpu status --make-room", "has no place beside it")]
)
def test_it_stands_beside_a_policy_alone(asking: Notebook, line: str, why: str) -> None:
    assert why in said(asking, line)


@pytest.mark.parametrize(("host", "ways"), [("program", ()), ("kernel", ("limit 5GiB --make-room",))])
def test_a_program_has_no_line_for_it_and_is_told_where_to_say_it(
    monkeypatch: pytest.MonkeyPatch, host: str, ways: tuple[str, ...]
) -> None:
    monkeypatch.setattr(make_room, "names", lambda _: {7: "eval.ipynb"})
    monkeypatch.setattr(make_room, "host", lambda: host)
    idle = [Idle(pid=7, since=0.0, held={"0": 4 * GIB}), Idle(pid=8, held={"0": GIB})]
    told = make_room.offered(Refused("Full."), "limit 5GiB --make-room", Snapshot(time=7300.0), idle, bool)

    assert "Full.\neval.ipynb (4 GiB, idle 2 h) runs no cell: parked, it would make room" in str(told)
    assert ("the magic's word `park` in it" in str(told)) is (host == "program")
    assert (told.ways, told.parks) == (ways, (7,))


def test_a_refusal_that_parking_does_not_help_is_as_it_was() -> None:
    error = Refused("Full.", ways=["limit 1GiB"])

    def never(_: object) -> bool:
        raise Refused("Still full.")

    assert make_room.offered(error, "x", Snapshot(time=0.0), [Idle(pid=7, held={"0": GIB})], never) is error
