"""Who works is busy, as people met it: cells side by side, cells within cells, widgets; and who was told of what."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from jupyter_client.manager import start_new_kernel

from tests.jupyter import execute
from tests.machines import machine_of
from tests.slack import SLACK
from tests.tf.test_reporter import board
from tests.waiting import until
from tfgpu_magic.notebook.report_schedule import EVERY
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from jupyter_client.blocking.client import BlockingKernelClient

CLOCK = "import time; print(time.time())"
WAITS = "import threading\nheld = threading.Event()\nheld.wait(3600)"
CLICKS = "from ipywidgets import Button\nbutton = Button()\nprint(button.model_id)"


machine = machine_of("1x16GiB")


@pytest.fixture
def kernel(machine: Machine) -> Iterator[BlockingKernelClient]:
    """A kernel that has loaded the extension."""
    manager, client = start_new_kernel(env=machine.environ(), extra_arguments=["--log-level=50"])
    execute(client, "%load_ext tfgpu_magic")
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def send(
    kernel: BlockingKernelClient, kind: str, content: dict[str, Any], channel: str = "shell", **header: Any
) -> str:
    message = kernel.session.msg(kind, content)
    message["header"].update(header)
    getattr(kernel, f"{channel}_channel").send(message)
    return str(message["header"]["msg_id"])


def subshell(kernel: BlockingKernelClient) -> str:
    """Return the id of a new subshell, in which a page's messages run beside a cell."""
    asked = send(kernel, "create_subshell_request", {}, "control")
    get = kernel.get_control_msg
    answer = until(lambda: get(timeout=30 * SLACK), lambda one: one["parent_header"]["msg_id"] == asked)
    return str(answer["content"]["subshell_id"])


def beside(kernel: BlockingKernelClient, shell: str, code: str) -> str:
    """Run a cell in a subshell to its end, and return what it printed."""
    said = ""
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    asked = send(kernel, "execute_request", content, subshell_id=shell)
    while True:
        message = kernel.get_iopub_msg(timeout=60 * SLACK)
        if message["parent_header"].get("msg_id") == asked:
            said += str(message["content"].get("text", ""))
            if message["content"].get("execution_state") == "idle":
                return said


def test_jupyter_11_a_cell_runs_on_when_another_one_has_ended_beside_it(
    kernel: BlockingKernelClient, machine: Machine
) -> None:
    shell = subshell(kernel)
    with board(machine) as reported:
        kernel.execute(WAITS)
        reported(lambda one: one.busy)
        amid = float(beside(kernel, shell, CLOCK))  # between the begin and the end of the cell that prints it
        during = reported(lambda one: one.active > amid)
        beside(kernel, shell, "held.set()")
        reported(lambda one: one.busy is False)

    assert during.busy


def test_jupyter_11_a_cell_that_runs_cells_runs_to_its_own_end(kernel: BlockingKernelClient, machine: Machine) -> None:
    inner = f"get_ipython().run_cell({CLOCK!r})\n"
    with board(machine) as reported:
        kernel.execute(inner + WAITS)
        amid = float(
            until(lambda: kernel.get_iopub_msg(timeout=60)["content"].get("text", ""), re.compile(r"\d").match)
        )
        during = reported(lambda one: one.active > amid)

    assert during.busy


def test_machine_3_a_click_on_a_widget_is_use_and_the_live_tables_messages_are_none(
    kernel: BlockingKernelClient, machine: Machine
) -> None:
    def click(comm: str, content: dict[str, str]) -> None:
        send(kernel, "comm_msg", {"comm_id": comm, "data": {"method": "custom", "content": content}})

    button = execute(kernel, CLICKS).strip()
    table = execute(
        kernel,
        "from tfgpu_magic import MemoryTable\ntable, active = MemoryTable(), []\n"
        "reporter = get_ipython().magics_manager.registry['TfGpuMagics'].reporter\n"
        "table.on_msg(lambda *_: active.append(reporter.state.active))\nprint(MemoryTable.number())",
    ).strip()
    ended = time.time()
    with board(machine) as reported:
        until(lambda: time.time() > ended + EVERY)
        clicked = time.time()
        click(button, {"event": "click"})
        after = reported(lambda one: one.active >= clicked)
        until(lambda: time.time() > clicked + 2 * EVERY)
        click(table, {"type": "drawn"})
        seen = float(execute(kernel, "print(*active)"))

    assert (after.busy, seen) == (False, after.active)
