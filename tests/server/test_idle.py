"""Which kernels are idle: what only looks keeps none awake, and what works does, for the panel and for the culler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import websocket
from psutil import Process

from tests.jupyter import Server, serving, until
from tests.machine.boards import board_of, pass_report
from tests.server.acting import Kernel
from tests.server.streaming import end
from tests.slack import SLACK
from tfgpu_magic.ground.report import Report
from tfgpu_magic.ground.rows import Notebook
from tfgpu_magic.machine.board.report_files import ReportFiles
from tfgpu_magic.machine.owners.attribution import merge_notebooks
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from collections.abc import Callable

CULLING = (
    "--MappingKernelManager.cull_idle_timeout=20",
    "--MappingKernelManager.cull_interval=2",
    "--ServerApp.log_level=INFO",
)
BRIEF = """
from tfgpu_magic.notebook import report_schedule
from tfgpu_magic.notebook import widget
widget.PRESENT_FOR, report_schedule.ACTIVITY_EVERY = 3.0, 5.0
"""


def test_a_kernel_that_had_a_table_is_culled_and_one_with_a_detached_job_is_not(tmp_path: Path) -> None:
    with (
        Machine.create("1x8GiB") as machine,
        serving(machine, tmp_path, options=CULLING, environment={"TFGPU_MAGIC_DIR": str(tmp_path / "board")}) as server,
    ):
        job = Kernel(server, "job.ipynb")
        job.run(f"%load_ext tfgpu_magic\n{BRIEF}")
        job.run("%%tf_gpu isolate --detach\nimport time; time.sleep(600)")
        table = Kernel(server, "table.ipynb")  # which no other's start keeps idle
        table.run(f"%load_ext tfgpu_magic\n{BRIEF}\n%tf_gpu top")

        def active() -> dict[str, str]:
            return {one["id"]: one["last_activity"] for one in server.call("kernels")}

        until(lambda: table.kernel not in active(), seconds=90)
        before = active()[job.kernel]
        until(lambda: active()[job.kernel] > before)  # of itself: it would be culled next
        for kernel in (table, job):
            kernel.client.stop_channels()


def _is_of_a_table(message: str) -> bool:
    return '"history"' in message or '"every"' in message or '"gpus"' in message


def page(server: Server, kernel: str, last: Callable[[str], object]) -> int:
    """Be a page until a message, always the same one, and go without a word; return how many tables it got before.

    Args:
        server: the server.
        kernel: a kernel.
        last: tells whether a message is the last. An answer to this page's own request arrives after all others.
    """

    where = f"ws://{server.base}api/kernels/{kernel}/channels?session_id=same&token={server.token}"
    header = {"msg_id": "own", "msg_type": "comm_info_request", "session": "same", "username": "", "version": "5.3"}
    asked = {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": {}}
    connection, states = websocket.create_connection(where, 60 * SLACK), 0
    connection.send(json.dumps(asked))
    while not last(text := str(connection.recv())):
        states += _is_of_a_table(text)
    end(connection)
    return states


def test_a_page_that_comes_back_gets_no_heap_of_old_states(server: Server) -> None:
    with Kernel(server, "table.ipynb") as kernel:
        kernel.run(f"%load_ext tfgpu_magic\n{BRIEF}")
        process = Process(kernel.pid)
        before = process.num_threads()
        kernel.run("%tf_gpu top")
        page(server, kernel.kernel, _is_of_a_table)
        until(lambda: process.num_threads() == before)  # the one that makes states has ended
        heap = page(server, kernel.kernel, lambda text: "comm_info_reply" in text)

    assert heap <= 4


def test_a_kernel_with_a_detached_job_says_that_it_is_busy_until_the_job_ends(machine: Machine, server: Server) -> None:
    with Kernel(server, "job.ipynb") as kernel, board_of(machine, server.home / "board") as place:
        kernel.run("%load_ext tfgpu_magic")
        kernel.run("%%tf_gpu isolate --detach\nimport time; time.sleep(600)")
        files = ReportFiles(place)

        def busy() -> bool | None:
            return next((one.busy for one in files.read() if one.pid == kernel.pid), None)

        until(busy)
        for _ in range(3):
            pass_report(place, kernel.pid)
            assert busy()
        kernel.run("%tf_gpu jobs stop 1")
        until(lambda: busy() is False)


SILENT = Report(pid=1, summary="")
IDLE = Report(pid=1, summary="", notebook="/home/me/a.ipynb", busy=False, active=100.0)


@pytest.mark.parametrize(
    ("report", "server", "active"),
    [
        (IDLE, "idle", 100.0),  # a kernel knows itself since when it is
        (IDLE, "busy", 100.0),  # called back by a widget
        (IDLE, "restarting", 900.0),
        (SILENT, "idle", 900.0),
        (None, "idle", 900.0),
    ],
)
def test_kernel_and_server_each_tell_what_it_alone_knows(report: Report | None, server: str, active: float) -> None:
    served = Notebook(path="a.ipynb", kernel="k", state=server, active=900.0)
    seen = merge_notebooks([report] if report else [], {1: served})[1]

    assert (seen.path, seen.kernel, seen.state, seen.active) == ("a.ipynb", "k", server, active)
