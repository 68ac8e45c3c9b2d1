"""`--wait`: notebooks and programs of one user that wait for room, in real kernels on a simulated GPU."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from tests.jupyter import Server, execute, notebooks, reply_to
from tests.machines import machine_of
from tests.processes import QUIET
from tests.sizes import GIB
from tests.waiting import until
from tfgpu_magic.command.wording import frameworks
from tfgpu_magic.engine import engine
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.notebook.words import line
from tfgpu_magic.policy.parser import parse
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.simgpu.neighbours import Neighbour

STATUS = [sys.executable, "-m", "tfgpu_magic", "status"]


machine = machine_of("1x16GiB")


@pytest.fixture
def holder(machine: Machine) -> Iterator[Neighbour]:
    holder = machine.add_neighbour("12GiB@0")
    yield holder
    holder.stop()


def shown(client: BlockingKernelClient, part: str) -> str:
    """Wait for an output of the running cell that has a part, and return it."""

    def output() -> str:
        content = client.get_iopub_msg(timeout=60)["content"]
        return str(content.get("data", {}).get("text/plain") or content.get("text", ""))

    return until(output, lambda text: part in text, every=0.0)


def begin(client: BlockingKernelClient, line: str) -> tuple[str, str]:
    return client.execute(line), shown(client, "Waiting for room since")


def status(machine: Machine) -> str:
    return subprocess.run(STATUS, env=machine.environ(), capture_output=True, text=True, check=True).stdout


def waiting(machine: Machine) -> set[str]:
    return set(re.findall(r"(\w+)\.ipynb[^\n0]*\n +waits for (?:\d+\.\d GiB|room) until \d\d:\d\d\n", status(machine)))


def test_who_came_first_goes_first_also_before_one_for_whom_there_is_room(
    machine: Machine, server: Server, holder: Neighbour
) -> None:
    with notebooks(server, "first.ipynb", "second.ipynb", "third.ipynb") as (first, second, third):
        one, told = begin(first.client, "%tf_gpu limit 60% --wait")
        two, _ = begin(second.client, "%gpu pick; limit 60% --wait 20m")
        three, behind = begin(third.client, "%tf_gpu limit 1GiB --wait")  # that fits at once
        rows = waiting(machine)
        holder.stop()
        went_on = reply_to(first.client, one)["status"]
        promised = shown(second.client, "promised")
        os.kill(first.pid, signal.SIGKILL)  # the holder of the room, who has taken none of it yet
        others = [reply_to(second.client, two)["status"], reply_to(third.client, three)["status"]]
        policies = [notebook.run("%tf_gpu plan") for notebook in (second, third)]
        there = waiting(machine)

    assert re.search(r"since (\d\d:\d\d:\d\d) ░{20} until (\d\d:\d\d:\d\d) at the latest", told)
    assert "GPU 0: 60% is 9.6 GiB" in told
    assert "    12 GiB  neighbour" in told
    assert "Programs of others have no order" in told
    assert "Another process of yours waits for the same GPU, and came first." in behind
    assert rows == {"first", "second", "third"}
    assert "10.1 GiB to first.ipynb" in promised
    assert [went_on, *others] == ["ok"] * 3
    assert ["limit 9.6 GiB" in policies[0], "limit 1 GiB" in policies[1], there] == [True, True, set()]


def test_an_isolated_cell_waits_in_the_row_of_its_notebook_also_without_a_limit(
    machine: Machine, server: Server, holder: Neighbour
) -> None:
    rest = machine.add_neighbour("3.5GiB@0")  # which leaves no room for a context
    with notebooks(server, "one.ipynb") as (notebook,):
        request, _ = begin(notebook.client, "%%tf_gpu isolate --wait 20m growth\n6 * 7")
        rows = waiting(machine)
        rest.stop()
        ended = reply_to(notebook.client, request)["status"]

    assert (rows, ended) == ({"one"}, "ok")


def test_an_interrupt_ends_the_wait_with_nothing_applied(machine: Machine, server: Server, holder: Neighbour) -> None:
    with notebooks(server, "one.ipynb") as (notebook,):
        before = notebook.run("%tf_gpu plan")
        request, _ = begin(notebook.client, "%tf_gpu limit 60% --wait")
        rows = waiting(machine)
        server.open(f"api/kernels/{notebook.kernel}/interrupt", {}).close()  # as JupyterLab's menu does, and the panel
        reply = reply_to(notebook.client, request)
        after, there = notebook.run("%tf_gpu plan"), waiting(machine)

    assert "The wait for room was interrupted." in "".join(reply["traceback"])
    assert (after, rows, there) == (before, {"one"}, set())


LATE = "import tensorflow as tf; x = tf.zeros((5, 2**28)); print('it' ' fits')"


def test_a_notebook_that_came_late_runs_its_cell_apart_when_there_is_room_by_a_line_of_its_error(
    server: Server, holder: Neighbour
) -> None:
    with notebooks(server, "late.ipynb") as (notebook,):
        notebook.run("%tf_gpu growth --release")
        why = notebook.run(LATE)
        line = next(re.finditer("%%tf_gpu isolate .* --wait", why))[0]
        request, _ = begin(notebook.client, f"{line}\n{LATE}")
        holder.stop()
        told = shown(notebook.client, "it fits")
        ended = reply_to(notebook.client, request)["status"]

    assert "it fits" not in why
    assert "Run the cell again: other processes may have given memory back." in why
    assert (ended, "it fits" in told) == ("ok", True)


def test_a_notebook_that_came_late_restarts_when_there_is_room_by_a_line_of_its_error(
    machine: Machine, server: Server, holder: Neighbour
) -> None:
    with notebooks(server, "late.ipynb") as (notebook,):
        why = notebook.run(LATE)
        line = next(re.finditer("%tf_gpu .* --restart --wait", why))[0]
        begin(notebook.client, line)
        rows = waiting(machine)
        holder.stop()
        until(lambda: machine.held(pid=notebook.pid) == 0)
        client = server.connect(notebook.kernel)
        execute(client, "%load_ext tfgpu_magic")
        again = execute(client, LATE)
        client.stop_channels()

    assert rows == {"late"}
    assert "it fits" not in why
    assert "it fits" in again


def test_a_notebook_goes_on_waiting_while_its_server_restarts(
    machine: Machine, server: Server, holder: Neighbour, tmp_path: Path
) -> None:
    """Its kernel is another program's, as a gateway's is; the server's collector reads the GPUs for all."""
    manager, client = start_new_kernel(env=machine.environ(os.environ | QUIET | {"IPYTHONDIR": str(tmp_path)}))
    try:
        execute(client, "%load_ext tfgpu_magic")
        request, _ = begin(client, "%tf_gpu limit 60% --wait")
        server.stop()
        server.start()
        holder.stop()
        ended = reply_to(client, request)["status"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    server.wait_until_it_answers()  # for the tests that follow

    assert ended == "ok"


def test_nbconvert_ends_with_the_error_when_the_time_is_over(
    machine: Machine, holder: Neighbour, tmp_path: Path
) -> None:
    cells = ["%load_ext tfgpu_magic", "%tf_gpu limit 60% --wait 1s", "open('went on', 'w')"]
    new = nbformat.v4
    book = new.new_notebook(cells=[new.new_code_cell(cell) for cell in cells])  # type: ignore[no-untyped-call]
    nbformat.write(book, tmp_path / "one.ipynb")  # type: ignore[no-untyped-call]
    command = [sys.executable, "-m", "nbconvert", "--execute", "--to", "notebook", "one.ipynb"]
    done = subprocess.run(command, cwd=tmp_path, env=machine.environ(), capture_output=True, text=True)

    assert done.returncode
    assert "Not applied. There was no room within 1 s. GPU 0: 60% is 9.6 GiB" in done.stderr
    assert not (tmp_path / "went on").exists()


def test_what_can_never_fit_is_refused_at_once(server: Server, holder: Neighbour) -> None:
    with notebooks(server, "one.ipynb") as (notebook,):
        never = notebook.run("%tf_gpu limit 17GiB --wait")
        unclear = notebook.run("%tf_gpu limit 60% --wait 10")
        offered = notebook.run("%tf_gpu limit 60%")

    assert "17 GiB, more than" in never
    assert "Waiting" not in never
    assert "10 of what? Write 10s or 10m." in unclear
    assert offered.endswith("\nWaits for room:\n  %tf_gpu limit 60% --wait")


@pytest.mark.parametrize(
    ("text", "time", "rest"),
    [
        ("limit 40% --wait", "30m", "limit 40%"),
        ("pick --wait 10m; limit 40%", "10m", "pick ; limit 40%"),
        ("limit --wait 40%", "30m", "limit 40%"),
    ],
)
def test_the_time_may_be_left_out(text: str, time: str, rest: str) -> None:
    parsed = line.read(text)

    assert (parsed.flags, parse(parsed.text)) == ({"--wait": time}, parse(rest))
    with pytest.raises(PolicyError, match="given twice"):
        line.read(f"{text} --wait")


@pytest.mark.parametrize(
    ("words", "gpus"),
    [
        ("limit 40%", ["GPU-0", "GPU-1"]),
        ("pick; limit 40%", ["GPU-0", "GPU-1"]),
        ("pick 2; limit 40%", ["GPU-0", "GPU-1"]),
        ("visible none", []),
        ("limit 9GiB", []),
    ],
)
def test_a_wait_is_for_each_gpu_on_which_there_could_be_room(
    words: str, gpus: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    full = (Gpu(index=n, uuid=f"GPU-{n}", name="A GPU", total=8 * GIB, free=0) for n in range(2))
    snapshot = Snapshot(time=time.time(), gpus=tuple(full))

    found = engine.attainable(parse(words), frameworks(words), snapshot, engine.anew(snapshot))

    assert list(found) == gpus
    assert {size and size <= 4 * GIB for size in found.values()} <= {True}
