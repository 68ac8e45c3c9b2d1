"""A parked notebook comes back by itself, whatever comes first: real kernels, whose arrays are really away (`shelf`).

What runs while they are empty gets another digest: so each answer of a parked notebook shows that its state was back
before anything of it ran.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.jupyter import Notebook, execute, reply_to
from tests.parking.notebooks import Parkable, Site, ask, digest_in, heard, send
from tests.slack import SLACK
from tests.waiting import until


def test_a_cell_finds_the_state_back(notebook: Parkable, digest: str) -> None:
    notebook.park()

    assert digest_in(notebook.run("print(digest())")) == digest
    assert not notebook.is_parked()


def button(notebook: Notebook, does: str) -> str:
    """Make a button that does something, and return its number."""
    return notebook.run(
        "import ipywidgets\n"
        "seen, button = [], ipywidgets.Button()\n"
        f"button.on_click(lambda _: {does})\n"
        "print(button.comm.comm_id)"
    ).split()[-1]


def send_custom(notebook: Notebook, number: str, **content: str) -> None:
    send(notebook, "comm_msg", {"comm_id": number, "data": {"method": "custom", "content": content}})


def answered(notebook: Notebook, asked: str) -> dict[str, Any]:
    get = notebook.client.get_control_msg
    return until(lambda: get(timeout=30 * SLACK), lambda one: one["parent_header"]["msg_id"] == asked)


def ask_for_widgets(notebook: Notebook) -> None:
    """Ask for the state of every widget as JupyterLab's page does when it is opened, and wait for what comes of it."""
    asking = {"comm_id": uuid4().hex}
    opening = {**asking, "target_name": "jupyter.widget.control", "data": {}}
    for kind, content in (
        ("comm_open", opening),
        ("comm_msg", {**asking, "data": {"method": "request_states"}}),
        ("comm_close", {**asking, "data": {}}),
    ):
        send(notebook, kind, content, metadata={"version": "1.0.0"})
    assert ask(notebook, "kernel_info_request", {})["status"] == "ok"  # those before it have been heard


def test_a_widgets_callback_finds_the_state_back(notebook: Parkable, digest: str) -> None:
    number = button(notebook, "seen.append(digest())")
    notebook.park()
    send_custom(notebook, number, event="click")
    until(lambda: not notebook.is_parked())

    assert notebook.run("print(*seen)").split() == [digest]


def test_parking_that_no_cell_asks_for_is_refused(notebook: Parkable) -> None:
    number = button(notebook, "shelf.park()")
    send_custom(notebook, number, event="click")
    until(lambda: heard(notebook), lambda text: "when a cell has ended" in text)

    assert not notebook.is_parked()


def test_the_debugger_finds_the_state_back(notebook: Parkable, digest: str) -> None:
    notebook.run("def fails():\n    raise ValueError\nfails()")
    notebook.park()
    client = notebook.client
    asked = client.execute("%debug", allow_stdin=True)
    for line in ("p digest()", "q"):
        client.get_stdin_msg(timeout=240)
        client.input(line)

    assert reply_to(client, asked)["status"] == "ok"
    until(lambda: heard(notebook), lambda text: digest in text)


TASK = "import asyncio\nover = asyncio.Event()\ntask = asyncio.get_event_loop().create_task(over.wait(), name='later')"
TIMER = "import threading\ntimer = threading.Timer(600, print); timer.name = 'timer'; timer.start()"
THREAD = (
    "import threading; over = threading.Event()\n"
    "def synchronises():\n"
    "    while not over.wait(0.05): digest()\n"
    "thread = threading.Thread(target=synchronises, name='synchroniser'); thread.start()"
)


@pytest.mark.parametrize(
    ("begin", "end", "named"),
    [
        (THREAD, "over.set(); thread.join()", "synchroniser"),
        (TIMER, "timer.cancel(); timer.join()", "timer"),
        (TASK, "over.set()", "task Event.wait"),
    ],
    ids=["thread", "timer", "task"],
)
def test_what_may_run_by_itself_makes_parking_refuse(
    notebook: Parkable, digest: str, begin: str, end: str, named: str
) -> None:
    notebook.run(begin)
    said = notebook.run("shelf.park()")

    assert f"while it is parked: {named}. Stop them first." in said
    assert not notebook.is_parked()
    notebook.run(end)
    notebook.park()
    assert digest_in(notebook.run("print(digest())")) == digest


def test_what_a_page_asks_when_it_is_opened_brings_nothing_back(notebook: Parkable, digest: str) -> None:
    notebook.park()
    assert ask(notebook, "kernel_info_request", {})["status"] == "ok"
    assert ask(notebook, "comm_info_request", {})["status"] == "ok"
    assert ask(notebook, "is_complete_request", {"code": "if x:"})["status"] == "incomplete"
    assert not ask(notebook, "complete_request", {"code": "dige", "cursor_pos": 4}).get("matches")
    assert not ask(notebook, "inspect_request", {"code": "digest", "cursor_pos": 6, "detail_level": 0}).get("found")
    ask_for_widgets(notebook)
    chooser = '__import__("tfgpu_magic.notebook.chooser").notebook.chooser.state("")'
    asks = {"code": "", "silent": True, "store_history": False, "user_expressions": {"answer": chooser}}
    said = ask(notebook, "execute_request", asks)  # as the chooser's page does
    assert (said["status"], said["evalue"]) == ("error", "This notebook is parked: bring its memory back first.")
    made = send(notebook, "debug_request", {"type": "request", "seq": 1, "command": "debugInfo"}, channel="control")
    answered(notebook, made)

    assert notebook.is_parked()
    assert digest_in(notebook.run("print(digest())")) == digest


def test_a_page_that_asks_for_widgets_where_there_are_none_brings_nothing_back(site: Site, tmp_path: Path) -> None:
    with site.parkable("page.ipynb", tmp_path) as notebook:
        digest = notebook.run("print(digest())")
        notebook.park()
        ask_for_widgets(notebook)

        assert notebook.is_parked()
        assert notebook.run("import sys; print('ipywidgets' in sys.modules, digest())") == f"False {digest}"


def test_a_widget_of_the_users_is_answered_once_the_state_is_back(notebook: Parkable, digest: str) -> None:
    number = notebook.run(
        "import ipywidgets\n"
        "seen = []\n"
        "class Own(ipywidgets.Widget):\n"
        "    def get_state(self, *args, **options):\n"
        "        seen.append(digest()); return super().get_state(*args, **options)\n"
        "own = Own(); seen.clear(); print(own.comm.comm_id)"
    ).split()[-1]
    notebook.park()
    ask_for_widgets(notebook)
    asked = send(notebook, "comm_msg", {"comm_id": number, "data": {"method": "request_state"}})
    assert ask(notebook, "kernel_info_request", {})["status"] == "ok"  # it has been heard

    assert notebook.is_parked()
    heard(notebook)
    assert digest_in(notebook.run("print(digest())")) == digest
    get = notebook.client.get_iopub_msg
    reply = until(lambda: get(timeout=60), lambda one: one["content"].get("comm_id") == number)
    assert (reply["parent_header"]["msg_id"], reply["content"]["data"]["method"]) == (asked, "update")
    assert set(notebook.run("own.close(); print(*seen)").split()) == {digest}


def test_one_interrupt_ends_the_wait_of_every_message_that_came_meanwhile(notebook: Parkable) -> None:
    number = button(notebook, "seen.append(1)")
    notebook.park()
    with notebook.without_room():
        for _ in range(5):
            send_custom(notebook, number, event="click")
        asked = send(notebook, "kernel_info_request", {})
        until(notebook.waits)
        os.kill(notebook.pid, signal.SIGINT)

        assert reply_to(notebook.client, asked)["status"] == "ok"
        assert notebook.is_parked()
    assert notebook.run("print(seen)") == "[]\n"


def test_a_live_table_that_a_page_draws_brings_nothing_back(site: Site, notebook: Parkable, digest: str) -> None:
    made = notebook.run("import tfgpu_magic; table = tfgpu_magic.MemoryTable(); print(table.comm.comm_id)")
    number = made.split()[-1]
    notebook.park()
    for size in ("1GiB", "2GiB"):
        with site.machine.add_neighbour(f"{size}@0"):
            send_custom(notebook, number, type="drawn")
            until(lambda: _draws(notebook, number))
    ask_for_widgets(notebook)

    assert notebook.is_parked()
    assert digest_in(notebook.run("table.close(); print(digest())")) == digest


def _draws(notebook: Notebook, comm: str) -> bool:
    """Tell whether a table's state has come since the last look."""
    said = []
    while notebook.client.iopub_channel.msg_ready():
        said.append(notebook.client.get_iopub_msg(timeout=1)["content"])
    return any("state" in one["data"].get("state", {}) for one in said if one.get("comm_id") == comm)


def test_a_second_page_of_the_same_kernel_finds_the_state_back(site: Site, notebook: Parkable, digest: str) -> None:
    second = site.server.connect(notebook.kernel)
    notebook.park()
    try:
        assert digest_in(execute(second, "print(digest())")) == digest
    finally:
        second.stop_channels()


def test_a_cell_of_a_subshell_finds_the_state_back(notebook: Parkable, digest: str) -> None:
    made = send(notebook, "create_subshell_request", {}, channel="control")
    subshell = answered(notebook, made)["content"]["subshell_id"]
    notebook.run("seen = []")
    notebook.park()
    content = {"code": "seen.append(digest())", "silent": False, "store_history": False, "user_expressions": {}}
    answer = send(notebook, "execute_request", content, subshell_id=subshell)

    assert reply_to(notebook.client, answer)["status"] == "ok"
    assert not notebook.is_parked()
    answer = send(notebook, "execute_request", {**content, "code": "shelf.park()"}, subshell_id=subshell)
    assert reply_to(notebook.client, answer)["status"] == "ok"
    assert notebook.is_parked()
    assert notebook.run("print(*seen)").split() == [digest]


def test_nothing_stays_of_the_gate_when_the_state_is_back(notebook: Parkable) -> None:
    look = (
        "import gc\n"
        "kernel, shell = get_ipython().kernel, get_ipython()\n"
        "print({n: h.__qualname__ for n, h in (kernel.shell_handlers | kernel.control_handlers).items()},\n"
        "      [n for n in ('run_cell_async',) if n in vars(shell)], 'trigger' in vars(shell.events),\n"
        "      'finish_metadata' in vars(kernel), gc.isenabled())"
    )
    before = notebook.run(look)
    notebook.park()
    notebook.run("pass")

    assert notebook.run(look) == before
