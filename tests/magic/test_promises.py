"""What notebooks of one user have promised each other of a GPU: real kernels of a real server, on simulated GPUs."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from jupyter_client.blocking.client import BlockingKernelClient

from tests.jupyter import Server, execute, serving
from tests.magic.shell import cells
from tests.processes import QUIET, program
from tests.sizes import CONTEXT, MIB
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

FIRST_OP = "import tensorflow as tf; kept = tf.constant(1.0)"


@dataclass(frozen=True, slots=True)
class Book:
    """A notebook with a kernel that has the extension."""

    server: Server
    session: str
    pid: int
    client: BlockingKernelClient

    def run(self, code: str) -> str:
        return execute(self.client, code)

    def until(self, code: str, part: str, *, seconds: float = 20.0) -> str:
        """Run a cell until it says so: the others' reports come within a second or two of what they report."""
        return until(lambda: self.run(code), lambda said: part in said, seconds=seconds, every=0.2)

    def kill(self) -> None:
        """End its kernel as a crash does."""
        os.kill(self.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def hall(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Machine, Server]]:
    home = tmp_path_factory.mktemp("home")
    with (
        Machine.create("1x16GiB") as machine,
        serving(machine, home, environment=QUIET) as server,
    ):
        yield machine, server


@contextmanager
def books(server: Server, *names: str) -> Iterator[list[Book]]:
    """Open notebooks of these names, and end them and their kernels."""
    opened: list[Book] = []
    try:
        for name in names:
            session = server.call(
                "sessions", {"path": name, "name": name, "type": "notebook", "kernel": {"name": "python3"}}
            )
            client = server.connect(session["kernel"]["id"])
            execute(client, "%load_ext tfgpu_magic\n%colors nocolor")
            opened.append(Book(server, session["id"], int(execute(client, "import os; print(os.getpid())")), client))
        yield opened
    finally:
        for book in opened:
            book.client.stop_channels()
            server.open(f"api/sessions/{book.session}", method="DELETE").close()


def held(machine: Machine, *opened: Book) -> list[int]:
    return [machine.held(pid=book.pid) for book in opened]


def test_the_third_notebook_at_40_percent_is_told_by_name_while_all_is_free(hall: tuple[Machine, Server]) -> None:
    machine, server = hall
    with books(server, "first.ipynb", "second.ipynb", "third.ipynb") as (first, second, third):
        first.run("%tf_gpu limit 40%")
        said = second.run("%tf_gpu limit 40%")
        told = third.until("%tf_gpu plan limit 40%", "second.ipynb")
        asked = third.run("%tf_gpu limit 40%")
        status = third.run("%tf_gpu")

    assert "promised" not in said
    assert "20.7 GiB of its 15.8 GiB are promised: " in told
    for text in (told, asked):
        assert "6.9 GiB to first.ipynb, 6.9 GiB to second.ipynb and 6.9 GiB to this" in text
        assert "Not applied" not in text
    assert "Of GPU 0 are promised and not taken yet: 6.9 GiB to first.ipynb and 6.9 GiB to second.ipynb." in status
    assert machine.held() == 0


def test_the_second_cap_of_60_percent_is_told_and_a_killed_kernel_promises_nothing(
    hall: tuple[Machine, Server],
) -> None:
    _, server = hall
    with books(server, "first.ipynb", "second.ipynb") as (first, second):
        first.run("%tf_gpu limit 60% --grow")
        told = second.until("%tf_gpu plan limit 60% --grow", "first.ipynb")
        first.kill()
        until(lambda: second.run("%tf_gpu plan limit 60% --grow"), lambda said: "promised" not in said, seconds=3)

    assert "20.2 GiB of its 15.8 GiB are promised: 10.1 GiB to first.ipynb and 10.1 GiB to this" in told


def test_a_gpu_is_divided_among_four_a_program_and_a_killed_kernel_among_them(hall: tuple[Machine, Server]) -> None:
    machine, server = hall
    with books(server, "a.ipynb", "b.ipynb", "c.ipynb") as (one, two, three):
        one.run("%tf_gpu limit fair")
        two.run("%tf_gpu limit fair")
        with program(machine, _say, "%tf_gpu limit fair", fresh=True):
            told = three.until("%tf_gpu limit fair", "for each of 4")
        three.until("%tf_gpu plan", "for each of 3")  # the program has ended
        two.kill()
        alone = three.until("%tf_gpu plan", "for each of 2")

    assert "3.1 GiB for each of 4: this, " in told
    for name in ("a.ipynb", "b.ipynb", "python"):
        assert name in told.partition("for each of 4")[2]
    assert "a.ipynb" in alone
    assert "b.ipynb" not in alone


def test_parts_are_fixed_at_import_and_hold_what_was_said_by_the_drivers_account(
    hall: tuple[Machine, Server],
) -> None:
    machine, server = hall
    with books(server, "a.ipynb", "b.ipynb", "late.ipynb") as (one, two, late):
        one.run("%tf_gpu limit fair")
        two.until("%tf_gpu limit fair", "for each of 2")
        first = one.run(FIRST_OP)
        part = held(machine, one)[0]
        left = late.until("%tf_gpu plan limit fair", "for each of 2")
        late.run("%tf_gpu limit fair")
        said = two.until("%tf_gpu plan", "late.ipynb")
        two.run(FIRST_OP)
        late.run(FIRST_OP)
        sizes = held(machine, one, two, late)
        changed = one.run("%tf_gpu limit fair")

    (gpu,) = machine.gpus()
    half = (gpu.total - gpu.reserved - 2 * 512 * MIB - 1536 * MIB) // 2 // MIB * MIB  # less what CUDA's libraries need
    assert part == half + CONTEXT
    assert "`limit fair` is in force: limit 6.6 GiB on GPU 0." in first
    assert "to a.ipynb" in left  # it keeps what it has taken
    assert "this and late.ipynb" in said
    assert sizes[0] == part
    assert abs(sizes[1] - sizes[2]) <= MIB  # they share what is left
    assert sum(sizes) < gpu.total - gpu.reserved
    assert "is in force already" in changed


def test_what_an_isolated_call_has_leased_counts_in_every_notebook(hall: tuple[Machine, Server]) -> None:
    _, server = hall
    with books(server, "calls.ipynb", "other.ipynb") as (calls, other):
        calls.run("%%tf_gpu isolate --detach limit 8GiB\nimport time; time.sleep(600)")
        until(lambda: calls.run("%tf_gpu jobs"), lambda said: " running " in said, seconds=60)
        leased = other.until("%tf_gpu plan limit 8GiB --grow", "promised")
        # Its process begins when the fork server has imported TensorFlow; the lease is there before.
        told = other.until("%tf_gpu plan limit 8GiB --grow", "calls.ipynb's isolated call", seconds=90)
        fair = other.run("%tf_gpu plan limit fair")
        calls.run("%tf_gpu jobs stop 1")
        freed = until(lambda: other.run("%tf_gpu plan limit 8GiB --grow"), lambda said: "promised" not in said)

    assert "8.5 GiB to " in leased
    assert "8.5 GiB to calls.ipynb's isolated call and 8.5 GiB to this" in told
    assert "Promised already: 8.5 GiB to calls.ipynb's isolated call." in fair
    assert re.search(r"this gets 5\.[0-9] GiB", fair)
    assert "grows" in freed


def _say(*lines: str) -> list[str]:
    return [seen.text for seen in cells(*lines)]
