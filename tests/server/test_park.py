"""What the panel's park does: a real kernel parks itself and comes back, and its row is true all the while."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.jupyter import Server, execute, reply_to
from tests.parking.conftest import workers
from tests.processes import kill
from tests.server.acting import Kernel, post, row_of
from tests.server.streaming import State, rows, streaming
from tests.sizes import GIB
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.parking.answers import reasons
from tfgpu_magic.parking.handlers import WAITED_FOR
from tfgpu_magic.parking.refusals import OFF

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.server.conftest import Serve
    from tfgpu_magic.simgpu import Machine

HOLDS = "from tests.simgpu.on_machine import allocate; allocate(%d)"
ALLOWS = '%load_ext tfgpu_magic\n%config TfGpuMagics.parking = "ask"'

SOON = [(204, ""), (202, "")]
"""It is done, or goes on: a busy machine takes longer to start a worker than an answer may take."""


@pytest.fixture(scope="module")
def server(serve: Serve) -> Server:
    return serve(config="from tfgpu_magic.parking import ask_kernel\nask_kernel.BEGIN_TIMEOUT = 15.0\n")


@pytest.fixture(autouse=True)
def no_worker_is_left(machine: Machine) -> Iterator[None]:
    yield
    kill(*workers(machine))


class Notebook(Kernel):
    """A notebook that holds memory of the first GPU, and lets itself be parked."""

    def __init__(self, server: Server, path: str, size: int = GIB, *, setup: str = ALLOWS) -> None:
        super().__init__(server, path)
        if setup:
            execute(self.client, setup)
        execute(self.client, HOLDS % size)

    def post(self, **fields: object) -> tuple[int, str]:
        """Ask the server to park it; return the answer's status and message."""
        body: dict[str, object] = {"kernel": self.kernel, "pid": self.pid, **fields}
        return post(self.server, "park", body)

    def parked(self) -> tuple[int, str]:
        """Have it parked: the server may still take it for busy, and the first worker takes its time."""
        return until(self.post, lambda answer: answer == (204, ""))

    def seen(self, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Return its row, once it is so."""
        return row_of(self.server, lambda row: row.get("kernel") == self.kernel and holds(row))


@pytest.fixture
def notebook(server: Server) -> Iterator[Notebook]:
    notebook = Notebook(server, "train.ipynb")
    yield notebook
    notebook.end()


def test_it_parks_and_comes_back_and_its_row_says_so(machine: Machine, server: Server, notebook: Notebook) -> None:
    held = machine.held(pid=notebook.pid)
    before = notebook.seen(lambda row: row.get("parks"))
    assert "parking" not in before

    assert notebook.parked()
    assert machine.held(pid=notebook.pid) == 0
    row = notebook.seen(lambda row: row.get("parking") == "parked")
    assert (row["owner"], row["away"], row["held"]) == ("train.ipynb", held, 0)
    assert row["since"] > 0

    assert notebook.post() == (204, "")  # twice is fine
    assert notebook.post(back=True) in SOON
    assert notebook.seen(lambda row: "parking" not in row)["held"] == held
    assert machine.held(pid=notebook.pid) == held


def test_one_that_does_not_allow_it_says_how_to_and_is_left_alone(server: Server, machine: Machine) -> None:
    other = Notebook(server, "shy.ipynb", setup="%load_ext tfgpu_magic")
    try:
        held = machine.held(pid=other.pid)
        status, said = until(other.post, lambda answer: "A cell runs there" not in answer[1])

        assert (status, said) == (409, reasons([OFF()]))
        assert '`%config TfGpuMagics.parking = "ask"`' in said
        assert machine.held(pid=other.pid) == held > 0
        assert not other.seen(lambda row: row.get("held")).get("parks")
    finally:
        other.end()


def test_a_busy_one_is_not_parked_now_nor_when_its_cell_ends(notebook: Notebook, machine: Machine) -> None:
    held = machine.held(pid=notebook.pid)
    notebook.client.execute("import time; time.sleep(20)")
    until(lambda: notebook.server.call(f"kernels/{notebook.kernel}")["execution_state"] == "busy")
    status, said = notebook.post()

    assert (status, said) in [(409, "A cell runs there: it is parked between cells only."), (202, "")]
    assert execute(notebook.client, "print(1)") == "1\n"
    assert machine.held(pid=notebook.pid) == held


def test_without_room_it_waits_says_for_whom_and_can_be_told_to_stay(
    server: Server, machine: Machine, notebook: Notebook
) -> None:
    held = machine.held(pid=notebook.pid)
    assert notebook.parked()
    with machine.add_neighbour("15GiB@0"):
        assert notebook.post(back=True) == (202, "")
        assert notebook.seen(lambda row: row.get("parking") == "waiting" and row.get("behind"))
        assert notebook.post(back=True) == (202, "")  # it goes on waiting
        assert notebook.post() == (204, "")
        assert notebook.seen(lambda row: row.get("parking") == "parked")["away"] == held
        assert notebook.post(back=True) == (202, "")
    assert notebook.seen(lambda row: "parking" not in row)["held"] == held


def test_one_for_which_a_cell_waits_is_interrupted_and_not_told_to_stay(
    server: Server, machine: Machine, notebook: Notebook
) -> None:
    assert notebook.parked()
    with machine.add_neighbour("15GiB@0"):
        asked = notebook.client.execute("pass")
        assert notebook.seen(lambda row: row.get("parking") == "waiting" and row.get("state") == "busy")

        assert notebook.post() == (409, WAITED_FOR)
        psutil.Process(notebook.pid).send_signal(signal.SIGINT)
        assert reply_to(notebook.client, asked)["status"] == "error"
        assert notebook.seen(lambda row: row.get("parking") == "parked")


def test_its_row_goes_with_it_when_it_is_killed(server: Server, notebook: Notebook) -> None:
    assert notebook.parked()
    notebook.seen(lambda row: row.get("parking") == "parked")
    psutil.Process(notebook.pid).kill()

    def gone(state: State) -> bool:
        return all(row.get("pid") != notebook.pid for row in rows(state))

    with streaming(server) as stream:
        assert stream.until(gone, 30)


def test_its_way_is_seen_and_what_its_worker_dies_over_is_set_right(
    machine: Machine, server: Server, notebook: Notebook
) -> None:
    machine.set_checkpoints(out=0.4 / SLACK, back=0.4 / SLACK)  # GB/s: 1.3 GB take seconds
    try:
        with ThreadPoolExecutor() as threads, streaming(server) as stream:
            asked = threads.submit(notebook.post)
            stream.until(lambda state: (notebook.row(state) or {}).get("parking") == "parking", 60)
            kill(*workers(machine))
            stream.until(lambda state: (notebook.row(state) or {}).get("parking") == "parked", 60)
            assert asked.result(120) in SOON
            assert machine.held(pid=notebook.pid) == 0
            kill(*workers(machine))
            assert notebook.seen(lambda row: row.get("parking") == "parked")
            back = threads.submit(notebook.post, back=True)
            stream.until(lambda state: (notebook.row(state) or {}).get("parking") == "restoring", 60)
            stream.until(lambda state: "parking" not in (notebook.row(state) or {"parking": ""}), 60)
            assert back.result(120) in SOON
    finally:
        machine.set_checkpoints(out=0.0, back=0.0)


def test_another_kernels_pid_and_no_kernel_at_all_are_not_there(notebook: Notebook) -> None:
    assert notebook.post(pid=1)[0] == 404
    assert notebook.post(kernel="another")[0] == 404
