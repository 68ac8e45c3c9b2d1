"""What the panel's stop does: one isolated call of a kernel of this server ends, and nothing else can be ended so."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.jupyter import Server
from tests.processes import NOBODYS_PID
from tests.server.acting import Kernel, post, row_of
from tests.server.conftest import Serve
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

BEGIN = """
%load_ext tfgpu_magic
kept = 5
"""
JOB = """%%tf_gpu isolate --detach --growth
import tensorflow as tf, time
x = tf.ones(3)
while True:
    time.sleep(0.05)
"""
DEAF = JOB.replace("while True:\n    time", "import signal; signal.signal(2, signal.SIG_IGN)\nwhile True:\n    time")

HANGING = """
import threading
from tfgpu_magic.server import actions
actions.stop = lambda *_: threading.Event().wait()
"""
"""Reads a process that a driver holds."""
SILENT = """
import asyncio
from tfgpu_magic.server.kernels import Kernels
answer, asked = Kernels.notebooks, []
async def notebooks(self):
    known = await answer(self)
    if asked:
        await asyncio.sleep(300)
    asked.extend(known)
    return known
Kernels.notebooks = notebooks
"""
"""Its managers answer until they have told of a kernel, and never again."""


@pytest.fixture(scope="module")
def kernel(server: Server) -> Iterator[Kernel]:
    with Kernel(server, "train.ipynb") as kernel:
        kernel.run(BEGIN)
        yield kernel


def call_of(kernel: Kernel, job: str = JOB) -> dict[str, object]:
    """Start an isolated call in a kernel, and return its row, once it holds memory."""
    kernel.run(job)
    kernel.run("job = _")
    return row_of(kernel.server, lambda row: row.get("call") and row.get("kernel") == kernel.kernel)


def stop(server: Server, pid: object, **more: object) -> int:
    return post(server, "stop", {"pid": pid, **more})[0]


def test_a_call_has_its_notebooks_look_and_is_stopped_alone(server: Server, kernel: Kernel) -> None:
    row = call_of(kernel)

    assert (row["owner"], row["path"], row["child"]) == ("train.ipynb's isolated call", "train.ipynb", "isolated call")
    assert stop(server, row["pid"]) == 204
    assert "KeyboardInterrupt" in kernel.run("print(type(job.exception(timeout=240)))")
    assert "5" in kernel.run("print(kept)")
    assert stop(server, row["pid"]) == 404


def test_a_call_that_heeds_no_interrupt_is_killed(server: Server, kernel: Kernel) -> None:
    row = call_of(kernel, DEAF)

    assert stop(server, row["pid"]) == 204
    assert psutil.pid_exists(int(str(row["pid"])))
    assert stop(server, row["pid"], kill=True) == 204
    assert "WorkerDied" in kernel.run("print(type(job.exception(timeout=240)))")


def test_nothing_else_can_be_stopped(server: Server, kernel: Kernel) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        kernel.run("%%tf_gpu isolate\n1")
        kernel.run("import subprocess, sys; other = subprocess.Popen(['sleep', '600'])")

        def last() -> list[int]:
            """Return which are there for longer than a look; nothing while any come and go."""
            before = psutil.Process(kernel.pid).children(recursive=True)
            time.sleep(0.5 * SLACK)
            after = psutil.Process(kernel.pid).children(recursive=True)
            return [one.pid for one in before] if after == before else []

        family = until(last)
        pids = [kernel.pid, *family, child.pid, os.getpid(), 1, NOBODYS_PID]
        assert len(family) > 1  # its fork server is among them, which is no call

        assert [stop(server, one, kill=True) for one in pids] == [404] * len(pids)
        assert all(map(psutil.pid_exists, pids[:-1]))
        child.communicate(b"\n")
    kernel.run("other.kill()")


def test_a_call_that_hangs_where_it_is_read_is_said_to_and_holds_no_server_up(machine: Machine, serve: Serve) -> None:
    server = serve(config=HANGING)

    assert stop(server, 1) == 504
    assert server.call("status")
    server.process.terminate()
    server.process.wait(40 * SLACK)


def test_where_the_managers_of_kernels_hang_a_call_of_one_that_is_known_is_stopped(serve: Serve) -> None:
    with Kernel(serve(config=SILENT), "train.ipynb") as kernel:
        kernel.run(BEGIN)
        row = call_of(kernel)

        assert stop(kernel.server, row["pid"]) == 204
        assert stop(kernel.server, 1) == 404
        assert "KeyboardInterrupt" in kernel.run("print(type(job.exception(timeout=240)))")
