"""One board for all processes of a user that see the same GPUs, and no process that sees others spoils it."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.machine import boards
from tests.machine.boards import collectors, end_collectors, fresh, root_only
from tests.sizes import GIB
from tests.waiting import until
from tfgpu_magic.machine.see import Watch
from tfgpu_magic.simgpu.build import libraries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tfgpu_magic.simgpu import Machine

BEGIN = """
import contextlib, os, sys, time
from pathlib import Path
from tfgpu_magic.machine.board import directory
directory._TEMPORARY = Path(sys.argv[1], "tmp")
"""
KERNEL, LOOKER = (BEGIN + program for program in (boards.KERNEL.format(then=""), boards.LOOKER))
ZOMBIES = (
    BEGIN
    + """
from tfgpu_magic.machine.see import Watch
def states():
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found.append(tuple(path.read_text().split()[1:3]))
    return found
if os.fork() == 0:  # of other code, which waits for it itself
    Path("/proc/self/comm").write_text("tfgpu-other")
    os._exit(0)
for _ in range(3):
    with Watch(linger=0.5) as live:
        assert live.wait(240).age is not None
    end = time.monotonic() + 240
    while [state for _, state in states() if state != "Z"] != [states()[0][1]] and time.monotonic() < end:
        time.sleep(0.1)
print(os.getpid(), *[name for name, state in states() if state == "Z"])
"""
)
"""A server that is process 1, and starts three collectors in a row."""


@pytest.fixture
def users(machine: Machine, homes: Path) -> Iterator[Path]:
    """The folders of all users, for processes that a test starts on the machine; collectors end with it."""
    yield homes
    end_collectors(machine)


@contextmanager
def program(
    code: str, homes: Path, *words: str, inside: tuple[str, ...] = (), env: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Run a program with its own idea of the environment until the block ends, and say what its first line is."""
    variables = {**os.environ, **(env or {})}
    command = [*inside, sys.executable, "-c", code, str(homes), *words]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables)
    assert process.stdout
    yield process.stdout.readline().strip()
    process.communicate("", timeout=240)


def summaries(live: Watch) -> list[str]:
    live.read()
    return sorted(report.summary for report in live.report_files.read())


def test_a_server_and_kernels_of_other_environments_meet_on_one_board(machine: Machine, users: Path) -> None:
    login = {"XDG_RUNTIME_DIR": str(users / "home"), "TMPDIR": str(users / "home")}
    with program(KERNEL, users, "login", env=login), program(KERNEL, users, "hub"), Watch(linger=3) as live:
        until(live.read, fresh, seconds=20)
        with program(LOOKER, users, env={"XDG_RUNTIME_DIR": str(users / "run")}) as error:
            seen = summaries(live)
            until(lambda: len(collectors(machine)) == 1)

    assert (error, seen) == ("None", ["hub", "login"])


@root_only
def test_a_container_that_looks_first_and_finds_no_driver_blinds_nobody(machine: Machine, users: Path) -> None:
    neighbour = machine.add_neighbour("9GiB@1")
    container = ("unshare", "--pid", "--fork", "--mount-proc")
    with program(LOOKER, users, inside=container, env={"LD_LIBRARY_PATH": ""}) as error, Watch(linger=3) as live:
        seen = until(live.read, fresh, seconds=20).snapshot

    assert error.startswith("No NVIDIA driver was found")
    assert [(row.gpu, row.pid, row.held) for row in seen.processes] == [("1", neighbour.pid, 9 * GIB)]


@root_only
@pytest.mark.usefixtures("machine")
def test_a_server_that_is_process_one_reaps_all_collectors_but_the_last_and_nobody_elses(users: Path) -> None:
    with program(ZOMBIES, users, inside=("unshare", "--pid", "--fork", "--mount-proc")) as said:
        pid, *zombies = said.split()

    assert pid == "1"
    assert "(tfgpu-other)" in zombies
    assert zombies.count("(tfgpu-collector)") <= 1  # the last, of which the next one takes care
    assert len(zombies) <= 2


def test_what_a_kernel_was_given_to_find_a_library_is_not_for_all(homes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, str]] = []

    class Popen:
        returncode = 0

        def __init__(self, *_: object, env: dict[str, str], **__: object) -> None:
            started.append(env)

        def communicate(self, timeout: float | None = None) -> tuple[str, str]:  # noqa: ARG002
            return "", ""

    monkeypatch.delenv("TFGPU_SIMGPU", raising=False)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/stubs")
    monkeypatch.setenv("LD_PRELOAD", "/stub.so")
    monkeypatch.setattr(subprocess, "Popen", Popen)
    with Watch() as live:
        live.read()

    assert not [name for name in started[0] if name.startswith("LD_")]
    assert started[0]["TFGPU_MAGIC_DIR"] == str(homes / "tmp" / f"tfgpu_magic-{os.geteuid()}")


@pytest.mark.parametrize(("folders", "count"), [(["/nowhere", str(libraries())], "2\n"), ([], "0\n")])
@pytest.mark.usefixtures("machine")
def test_a_library_that_the_system_does_not_find_is_found_where_a_kernel_finds_it(
    folders: list[str], count: str
) -> None:
    code = (
        "import sys; from tfgpu_magic.machine.driver.nvml import NvmlReader; "
        "print(len(NvmlReader(sys.argv[1:]).read().gpus))"
    )
    env = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    done = subprocess.run([sys.executable, "-c", code, *folders], env=env, capture_output=True, text=True, check=True)

    assert done.stdout == count


def test_slow_readings_in_a_row_do_not_take_figures_out_of_sight(machine: Machine, live: Watch) -> None:
    until(live.read, fresh, seconds=20)
    machine.hang("nvmlDeviceGetMemoryInfo", 0.3)  # for each of two GPUs
    first = until(live.read, lambda seen: seen.every > 2, seconds=20).sequence
    until(live.read, lambda seen: seen.sequence >= first + 2)  # slow ones of other kinds
    machine.clear_faults()
    begun = live.read().sequence
    seen = until(live.read, lambda seen: seen.sequence > begun, seconds=14)

    assert seen.every <= 11
