"""Which kernels are idle: what only looks keeps none awake, and what works does, for the panel and for the culler."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

from tornado.websocket import websocket_connect

from tests.jupyter import Server, execute, serving, until
from tests.server.acting import Kernel
from tests.server.streaming import end
from tests.slack import SLACK
from tfgpu_magic.model.report import Report
from tfgpu_magic.model.rows import Notebook
from tfgpu_magic.monitor.owners.attribution import together
from tfgpu_magic.simgpu import Machine

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
        culled = until(lambda: not any(one["id"] == table.kernel for one in server.call("kernels")), seconds=90)
        time.sleep(10)
        alive = [one["id"] for one in server.call("kernels")]
        for kernel in (table, job):
            kernel.client.stop_channels()

    assert culled
    assert alive == [job.kernel]


def page(server: Server, kernel: str, seconds: float) -> int:
    """Be a page for a time, always the same one, and go without a word; return how many states of tables it got."""

    async def draw() -> int:
        where = f"ws://{server.base}api/kernels/{kernel}/channels?session_id=same&token={server.token}"
        socket, states = await websocket_connect(where), 0
        over = time.monotonic() + seconds
        with contextlib.suppress(asyncio.TimeoutError):
            while text := await asyncio.wait_for(socket.read_message(), over - time.monotonic()):
                states += '"history"' in str(text) or '"every"' in str(text) or '"gpus"' in str(text)
        await end(socket)
        return states

    return asyncio.run(draw())


def test_a_page_that_comes_back_gets_no_heap_of_old_states(server: Server) -> None:
    kernel = Kernel(server, "table.ipynb")
    execute(kernel.client, f"%load_ext tfgpu_magic\n{BRIEF}\n%tf_gpu top")
    seen = page(server, kernel.kernel, 2.5 * SLACK)
    time.sleep(20)
    heap = page(server, kernel.kernel, 2.5)
    kernel.end()

    assert seen >= 1
    assert heap <= 4


REPORTS = """
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.monitor.board.report_files import ReportFiles
with BoardDirectory() as place:
    print([one.busy for one in ReportFiles(place).read() if one.pid == {pid}])
"""


def test_a_kernel_with_a_detached_job_says_that_it_is_busy_until_the_job_ends(server: Server) -> None:
    kernel, other = Kernel(server, "job.ipynb"), Kernel(server)
    reports = REPORTS.format(pid=execute(kernel.client, "import os; print(os.getpid())").strip())
    execute(kernel.client, "%load_ext tfgpu_magic")
    execute(kernel.client, "%%tf_gpu isolate --detach\nimport time; time.sleep(600)")
    until(lambda: execute(other.client, reports) == "[True]\n")
    time.sleep(3)  # it goes on to
    during = execute(other.client, reports)
    execute(kernel.client, "%tf_gpu jobs stop 1")
    after = until(lambda: "False" in execute(other.client, reports), seconds=20)
    for one in (kernel, other):
        one.end()

    assert during == "[True]\n"
    assert after


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
