"""Whose memory it is: kernels of this server by their notebooks, others' by no more than a user's name."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.jupyter import Server
from tests.reports.test_nobody_ended import WAITS, beside, send, subshell
from tests.server.acting import Kernel
from tests.server.streaming import rows, streaming
from tests.sizes import GIB, MIB
from tests.waiting import until
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.simgpu.demo.machine import as_notebook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOLD = f"from tests.simgpu.on_machine import allocate; print(allocate({512 * MIB}))"
CHILD = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "{HOLD}; input()"], stdin=subprocess.PIPE)
"""
HOSTILE = ["<img src=x onerror=alert(1)>.ipynb", "\u202eevil\u2066.ipynb", "a\x1b[31m\nb\t.ipynb", "'\";--&.ipynb"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts another user's process")


@pytest.fixture
def start(server: Server) -> Iterator[Callable[..., Kernel]]:
    """Start kernels, which end with the test."""
    with ExitStack() as stack:
        yield lambda *path, **more: stack.enter_context(Kernel(server, *path, **more))


def test_a_kernel_is_named_by_its_notebook_and_who_else_is_on_it_and_a_rename_shows(
    server: Server, start: Callable[..., Kernel]
) -> None:
    kernel = start("work/train.ipynb")
    shared = {"path": "scratch.ipynb", "name": "", "type": "notebook", "kernel": {"id": kernel.kernel}}
    server.call("sessions", shared)
    with streaming(server) as stream:
        assert "[0, 0, 0]" in kernel.run(HOLD)
        seen = kernel.row(stream.until(lambda state: kernel.row(state).get("held") == 768 * MIB, 4))
        server.call(f"sessions/{kernel.session}", {"path": "work/tried.ipynb"}, method="PATCH")
        renamed = stream.until(lambda state: kernel.row(state).get("owner") == "tried.ipynb", 5)

    assert (seen["who"], seen["owner"], seen["path"]) == ("mine", "train.ipynb", "work/train.ipynb")
    assert seen["also"] == ["scratch.ipynb"]
    assert seen["active"] > 1.7e9
    assert kernel.row(renamed)["path"] == "work/tried.ipynb"


def test_whether_a_kernel_is_busy_shows(server: Server, start: Callable[..., Kernel]) -> None:
    kernel = start("busy.ipynb")
    # The server learns of it from the kernel's messages, which it hears when a page is connected, or by itself.
    kernel.run(HOLD)
    with streaming(server) as stream:
        stream.until(kernel.row, 4)
        kernel.client.execute("import time; time.sleep(3600)")
        stream.until(lambda state: kernel.row(state).get("state") == "busy", 4)
        server.open(f"api/kernels/{kernel.kernel}/interrupt", {}, method="POST").close()
        stream.until(lambda state: kernel.row(state).get("state") == "idle", 15)


def wait_beside_another(server: Server, kernel: Kernel) -> str:
    """Run a cell that waits, and one in a subshell to its end, for which the server calls the kernel idle."""
    kernel.client.execute(WAITS)
    shell = subshell(kernel.client)
    beside(kernel.client, shell, "1 + 1")
    until(lambda: server.call(f"kernels/{kernel.kernel}")["execution_state"] == "idle")
    return shell


def test_a_cell_that_waits_while_a_subshell_answers_is_busy_to_its_end(
    server: Server, start: Callable[..., Kernel]
) -> None:
    kernel = start("beside.ipynb")
    kernel.run(HOLD)
    shell = wait_beside_another(server, kernel)
    with streaming(server) as stream:  # and nobody has looked before
        during = kernel.row(stream.until(kernel.row, 8))
        beside(kernel.client, shell, "held.set()")
        stream.until(lambda state: kernel.row(state).get("state") == "idle", 15)

    assert during["state"] == "busy"


def test_a_restart_ends_the_cells_of_all_shells_and_later_ones_count(
    server: Server, start: Callable[..., Kernel]
) -> None:
    kernel = start("restarted.ipynb")
    content = {"code": WAITS, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    send(kernel.client, "execute_request", content, subshell_id=wait_beside_another(server, kernel))
    until(lambda: server.call(f"kernels/{kernel.kernel}")["execution_state"] == "busy")
    server.call(f"kernels/{kernel.kernel}/restart", {}, method="POST")
    kernel.client.wait_for_ready(timeout=60)
    kernel.run(HOLD)
    with streaming(server) as stream:
        stream.until(lambda state: kernel.row(state).get("state") == "idle", 15)
    wait_beside_another(server, kernel)
    with streaming(server) as stream:
        stream.until(lambda state: kernel.row(state).get("state") == "busy", 15)


def test_no_descriptor_is_left_of_a_kernel_that_is_gone(server: Server) -> None:
    process = psutil.Process(server.process.pid)

    def connected(kernel: Kernel) -> int:
        ends = [one.raddr[1:] for one in psutil.net_connections("tcp") if one.pid == process.pid]
        return ends.count((kernel.client.iopub_port,))

    def end(kernel: Kernel) -> int:
        assert connected(kernel) == 2  # of Jupyter Server itself, and ours
        kernel.end()
        until(lambda: not connected(kernel))
        return process.num_fds()

    before, kernel = end(Kernel(server)), Kernel(server)
    server.call(f"kernels/{kernel.kernel}/restart", {}, method="POST")
    until(lambda: connected(kernel) == 2)
    end(kernel)
    until(lambda: process.num_fds() <= before)


def test_a_child_of_a_kernel_is_its_notebooks(server: Server, start: Callable[..., Kernel]) -> None:
    kernel = start("parent.ipynb")
    with streaming(server) as stream:
        kernel.run(CHILD)
        seen = kernel.row(stream.until(kernel.row, 8))

    assert seen["owner"].startswith("parent.ipynb's python")
    assert (seen["path"], seen["kernel"]) == ("parent.ipynb", kernel.kernel)


def test_kernels_without_a_notebook_are_named_and_lead_to_no_file(server: Server, start: Callable[..., Kernel]) -> None:
    bare = start()
    console = start("console-1-1f0e", kind="console", name="Console 1")
    with streaming(server) as stream:
        for kernel in (bare, console):
            kernel.run(HOLD)
        state = stream.until(lambda state: bare.row(state) and console.row(state), 5)

    names = [(row["owner"], row.get("path")) for row in (bare.row(state), console.row(state))]
    assert names == [(f"python3 {bare.kernel[:8]}", None), ("Console 1", None)]


def test_a_hostile_name_comes_through_as_data(server: Server, start: Callable[..., Kernel]) -> None:
    kernel = start("work/plain.ipynb")
    with streaming(server) as stream:
        kernel.run(HOLD)
        for name in (*HOSTILE, "x" * 200 + ".ipynb"):
            path = f"work/{name}"
            server.call(f"sessions/{kernel.session}", {"path": path}, method="PATCH")
            seen = kernel.row(stream.until(lambda state, path=path: kernel.row(state).get("path") == path, 5))  # type: ignore[misc]

            assert len(seen["owner"]) <= 120
            assert not set(seen["owner"]) & set("\x1b\n\t\u202e\u2066")


@needs_root
def test_of_another_user_there_is_a_name_and_what_is_held_and_nothing_else(machine: Machine, server: Server) -> None:
    secret = "hunter2-secret"
    with as_notebook(f"/home/other/{secret}.ipynb"):
        theirs = machine.add_foreign("2GiB@1", name=f"train --password={secret}")
    assert secret in Path(f"/proc/{theirs.pid}/cmdline").read_text()
    assert secret in Path(f"/proc/{theirs.pid}/environ").read_text()
    with theirs, streaming(server) as stream:
        state = stream.until(lambda state: any(row["who"] == "other" for row in rows(state)), 5)
        with server.open("tfgpu-magic/snapshot") as answer:
            snapshot = answer.read().decode()
        (row,) = (row for row in rows(state) if row["who"] == "other")
        said = str(stream.messages) + snapshot

    told = {"gpu": "1", "pid": theirs.pid, "kind": "C", "held": 2 * GIB, "utilisation": 0}  # as by the driver
    assert row == told | {"who": "other", "owner": "nobody"}
    assert secret not in said
