"""Reports of notebooks that bore another's name, or none, and of own processes that were called another user's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.jupyter import execute
from tests.server.acting import Kernel, post, row_of
from tests.server.conftest import machine, serve, server  # noqa: F401  fixtures
from tests.server.streaming import rows, streaming
from tests.waiting import until
from tfgpu_magic.machine.owners.attribution import Owners
from tfgpu_magic.machine.owners.pids import start_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.jupyter import Server
    from tests.server.conftest import Serve
    from tfgpu_magic.simgpu import Machine

HOLD = "from tests.simgpu.on_machine import allocate; allocate(2**28)"


@pytest.fixture(scope="module")
def gateway(serve: Serve) -> Server:  # noqa: F811
    """A server whose kernels another one shows: a gateway's own requests are those of Jupyter Server."""
    return serve()


@pytest.fixture(scope="module")
def behind(serve: Serve, gateway: Server) -> Server:  # noqa: F811
    url = f"http://127.0.0.1:{gateway.port}"
    return serve(f"--GatewayClient.url={url}", f"--GatewayClient.auth_token={gateway.token}")


def open_notebook(behind: Server, gateway: Server, path: str) -> tuple[str, Any]:
    """Open a notebook whose kernel is the gateway's; return the kernel and a client of it."""
    asked = {"path": path, "name": path, "type": "notebook", "kernel": {"name": "python3"}}
    kernel = behind.call("sessions", asked)["kernel"]["id"]
    return kernel, gateway.connect(kernel)


def test_jupyter_3_a_gateways_kernel_is_its_notebooks_and_no_process_to_be_ended(
    behind: Server, gateway: Server
) -> None:
    kernel, client = open_notebook(behind, gateway, "train.ipynb")
    pid = int(execute(client, f"import os; {HOLD}; print(os.getpid())"))
    row = row_of(behind, lambda row: row.get("pid") == pid)

    assert (row["owner"], row.get("kernel"), row.get("path")) == ("train.ipynb", kernel, "train.ipynb")
    assert post(behind, "end", {"pid": pid, "began": start_time(pid)})[0] == 403
    assert execute(client, "print('lives')") == "lives\n"


def test_jupyter_4_a_kernel_that_a_launcher_starts_elsewhere_is_its_notebooks(
    server: Server,  # noqa: F811
) -> None:
    """As a container's: the process that the server has started only waits for it."""
    away = "import subprocess, sys, time; subprocess.Popen(sys.argv[1:], start_new_session=True); time.sleep(600)"
    kernels = Path(os.environ["JUPYTER_DATA_DIR"]) / "kernels" / "away"
    kernels.mkdir(parents=True)
    shim = (
        "import os, subprocess, sys; os.fork() and os._exit(0); os.setsid(); "
        "del os.environ['JPY_PARENT_PID']; subprocess.run(sys.argv[1:])"
    )
    start = [sys.executable, "-c", away, sys.executable, "-c", shim]
    argv = [*start, sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "away", "language": "python"}
    (kernels / "kernel.json").write_text(json.dumps(spec))
    notebook = Kernel(server, "contained.ipynb", kernel="away")
    notebook.run(HOLD)
    row = row_of(server, lambda row: row.get("pid") == notebook.pid)
    try:
        assert (row["owner"], row.get("kernel")) == ("contained.ipynb", notebook.kernel)
        assert post(server, "end", {"pid": notebook.pid, "began": start_time(notebook.pid)})[0] == 403
    finally:
        os.kill(notebook.pid, signal.SIGKILL)


def test_another_servers_kernel_is_told_to_be_one(server: Server, gateway: Server) -> None:  # noqa: F811
    notebook = Kernel(gateway, "theirs.ipynb")
    notebook.run(HOLD)
    row = row_of(server, lambda row: row.get("pid") == notebook.pid)

    assert (row["owner"], row.get("kernel"), row["state"]) == ("theirs.ipynb", None, "unknown")
    notebook.end()


@pytest.fixture
def ended(machine: Machine) -> Iterator[int]:  # noqa: F811
    """A process whose first thread has ended, and another not, so that a driver still counts it."""
    code = (
        "import threading, ctypes, time; threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "print(flush=True); ctypes.CDLL(None).pthread_exit(None)"
    )
    process = machine.popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    process.stdout.readline()
    until(lambda: start_time(process.pid) is None)
    row = machine.add_row(process.pid, 0, "5GiB")
    yield process.pid
    row.stop()
    process.kill()
    process.communicate()


def test_jupyter_9_an_own_process_that_has_ended_and_still_holds_memory_is_no_other_users(
    server: Server,  # noqa: F811
    ended: int,
) -> None:
    row = row_of(server, lambda row: row.get("pid") == ended)

    assert (row["who"], row["owner"]) == ("mine", "python, ended")
    assert row["held"] == 5 * 2**30
    assert "began" not in row  # nothing is offered for it


def test_an_own_process_that_is_not_waited_for_is_no_other_users() -> None:
    with subprocess.Popen(["true"]) as process:
        until(lambda: start_time(process.pid) is None)
        found = Owners(kernel=0).find([process.pid])[process.pid]

    assert (found.who, found.text) == ("mine", "true, ended")


def test_jupyter_10_a_notebook_of_vs_code_is_called_by_its_own_name(server: Server) -> None:  # noqa: F811
    notebook = Kernel(server, "work/train-jvsc-0a1b2c3d-330b-4f0f-a654-ee50eee38d0f0a1b2c3d-330b-4f0f.ipynb")
    notebook.run(HOLD)
    row = row_of(server, lambda row: row.get("kernel") == notebook.kernel)

    assert (row["owner"], "path" in row) == ("train.ipynb", False)  # where its file is, VS Code alone knows
    notebook.run("__vsc_ipynb_file__ = '/home/ann/work/train.ipynb'")
    own = notebook.run(
        "from tfgpu_magic.machine.owners.pids import notebook_of_shell; print(notebook_of_shell(get_ipython()))"
    )
    assert own == "/home/ann/work/train.ipynb\n"
    notebook.end()


def test_jupyter_26_a_notebook_that_a_notebook_runs_does_not_bear_its_name(server: Server) -> None:  # noqa: F811
    inner = [
        "%load_ext tfgpu_magic",
        f"import os, pathlib; {HOLD}; pathlib.Path('pid').write_text(str(os.getpid()))",
        "import time\nwhile not pathlib.Path('over').exists(): time.sleep(0.05)",
    ]
    empty: dict[str, object] = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    cells = [{**empty, "source": source} for source in inner]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    (server.home / "child.ipynb").write_text(json.dumps(notebook))
    parent = Kernel(server, "parent.ipynb")
    parent.run(f"%load_ext tfgpu_magic\n{HOLD}")
    parent.run(
        "import subprocess, sys; run = subprocess.Popen([sys.executable, '-m', 'nbconvert', '--to', 'notebook', "
        "'--execute', 'child.ipynb'])"
    )
    child = int(until(lambda: (server.home / "pid").read_text(), despite=OSError))
    with streaming(server) as stream:
        found = stream.until(
            lambda state: (
                {row.get("pid"): row for row in rows(state) if row.get("pid") in (child, parent.pid)}
                if {child, parent.pid} <= {row.get("pid") for row in rows(state)}
                else None
            ),
            60,
        )
    rows_now = {row.get("pid"): row for row in rows(found)}
    (server.home / "over").touch()
    parent.run("run.wait()")

    assert rows_now[parent.pid]["owner"] == "parent.ipynb"
    assert rows_now[child]["owner"].startswith("parent.ipynb's python")
    assert rows_now[child]["child"]
    parent.end()
