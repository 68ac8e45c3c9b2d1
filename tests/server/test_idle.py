"""Which kernels are idle: what only looks keeps none awake, and what works does, for the panel and for the culler."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

from psutil import Process
from tornado.websocket import websocket_connect

from tests.jupyter import Server, execute, serving, until
from tests.monitor.boards import board_of, pass_report
from tests.server.acting import Kernel
from tests.server.streaming import end
from tfgpu_magic.model.report import Report
from tfgpu_magic.model.rows import Notebook
from tfgpu_magic.monitor.board.report_files import ReportFiles
from tfgpu_magic.monitor.owners.attribution import together
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from collections.abc import Callable

CULLING = (
    "--MappingKernelManager.cull_idle_timeout=20",
    "--MappingKernelManager.cull_interval=2",
    "--ServerApp.log_level=INFO",
)
BRIEF = """
import tfgpu_magic.notebook.reporter
from tfgpu_magic.notebook import widget
widget.PRESENT_FOR, tfgpu_magic.notebook.reporter.AWAKE_EVERY = 3.0, 5.0
"""


def test_a_kernel_that_had_a_table_is_culled_and_one_with_a_detached_job_is_not(tmp_path: Path) -> None:
    with (
        Machine.create("1x8GiB") as machine,
        serving(machine, tmp_path, options=CULLING, environment={"TFGPU_MAGIC_DIR": str(tmp_path / "board")}) as server,
    ):
        job = Kernel(server, "job.ipynb")
        execute(job.client, f"%load_ext tfgpu_magic\n{BRIEF}")
        execute(job.client, "%%tf_gpu isolate --detach\nimport time; time.sleep(600)")
        table = Kernel(server, "table.ipynb")  # which no other's start keeps idle
        execute(table.client, f"%load_ext tfgpu_magic\n{BRIEF}\n%tf_gpu top")

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

    async def draw() -> int:
        where = f"ws://{server.base}api/kernels/{kernel}/channels?session_id=same&token={server.token}"
        socket, states = await websocket_connect(where), 0
        header = {"msg_id": "own", "msg_type": "comm_info_request", "session": "same", "username": "", "version": "5.3"}
        asked = {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": {}}
        await socket.write_message(json.dumps(asked))
        while not last(text := str(await socket.read_message())):
            states += _is_of_a_table(text)
        await end(socket)
        return states

    return asyncio.run(draw())


def test_a_page_that_comes_back_gets_no_heap_of_old_states(server: Server) -> None:
    kernel = Kernel(server, "table.ipynb")
    execute(kernel.client, f"%load_ext tfgpu_magic\n{BRIEF}")
    process = Process(kernel.pid)
    before = process.num_threads()
    execute(kernel.client, "%tf_gpu top")
    page(server, kernel.kernel, _is_of_a_table)
    until(lambda: process.num_threads() == before)  # the one that makes states has ended
    heap = page(server, kernel.kernel, lambda text: "comm_info_reply" in text)
    kernel.end()

    assert heap <= 4


def test_a_kernel_with_a_detached_job_says_that_it_is_busy_until_the_job_ends(machine: Machine, server: Server) -> None:
    kernel = Kernel(server, "job.ipynb")
    execute(kernel.client, "%load_ext tfgpu_magic")
    execute(kernel.client, "%%tf_gpu isolate --detach\nimport time; time.sleep(600)")
    with board_of(machine, server.home / "board") as place:
        files = ReportFiles(place)

        def busy() -> bool | None:
            return next((one.busy for one in files.read() if one.pid == kernel.pid), None)

        until(busy)
        for _ in range(3):
            pass_report(place, kernel.pid)
            assert busy()
        execute(kernel.client, "%tf_gpu jobs stop 1")
        until(lambda: busy() is False)
    kernel.end()


def test_a_kernel_knows_itself_since_when_it_is_idle() -> None:
    reports = [Report(pid=1, summary="", notebook="/home/me/a.ipynb", busy=False, active=100.0)]
    (seen,) = together(reports, {1: Notebook(path="a.ipynb", kernel="k", state="idle", active=900.0)}).values()

    assert (seen.path, seen.kernel, seen.state, seen.active) == ("a.ipynb", "k", "idle", 100.0)


def test_what_a_server_alone_knows_is_taken_from_it() -> None:
    silent, idle = Report(pid=1, summary=""), Report(pid=1, summary="", busy=False, active=100.0)
    served = Notebook(path="a.ipynb", kernel="k", state="idle", active=900.0)
    restarting = Notebook(path="a.ipynb", kernel="k", state="restarting", active=900.0)
    called_back = Notebook(path="a.ipynb", kernel="k", state="busy", active=900.0)

    assert together([silent], {1: served}) == {1: served}
    assert together([], {1: served}) == {1: served}
    assert together([idle], {1: restarting}) == {1: restarting}
    assert together([idle], {1: called_back})[1].state == "busy"
