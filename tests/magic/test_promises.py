"""What notebooks of one user have promised each other of a GPU: real kernels of a real server, on simulated GPUs."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.jupyter import Notebook, Server, serving
from tests.magic.shell import cells
from tests.processes import QUIET, program
from tests.sizes import CONTEXT, MIB
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

FIRST_OP = "import tensorflow as tf; kept = tf.constant(1.0)"


@pytest.fixture(scope="module")
def hall(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Machine, Server]]:
    home = tmp_path_factory.mktemp("home")
    with (
        Machine.create("1x16GiB") as machine,
        serving(machine, home, environment=QUIET) as server,
    ):
        yield machine, server


@contextmanager
def notebooks(server: Server, *names: str) -> Iterator[list[Notebook]]:
    """Start notebooks of these names with the extension, and end them and their kernels."""
    started: list[Notebook] = []
    try:
        for name in names:
            started.append(Notebook(server, name))
            started[-1].run("%load_ext tfgpu_magic\n%colors nocolor")
        yield started
    finally:
        for one in started:
            one.client.stop_channels()
            server.delete(f"api/sessions/{one.session}")


def heard(notebook: Notebook, code: str, part: str, *, seconds: float = 20.0) -> str:
    """Run a cell until it says so: the others' reports come within a second or two of what they report."""
    return until(lambda: notebook.run(code), lambda said: part in said, seconds=seconds, every=0.2)


def kill(notebook: Notebook) -> None:
    """End its kernel as a crash does."""
    os.kill(notebook.pid, signal.SIGKILL)


def held(machine: Machine, *started: Notebook) -> list[int]:
    return [machine.held(pid=one.pid) for one in started]


def test_the_third_notebook_at_40_percent_is_told_by_name_while_all_is_free(hall: tuple[Machine, Server]) -> None:
    machine, server = hall
    with notebooks(server, "first.ipynb", "second.ipynb", "third.ipynb") as (first, second, third):
        first.run("%tf_gpu limit 40%")
        said = second.run("%tf_gpu limit 40%")
        promises = "6.9 GiB to first.ipynb, 6.9 GiB to second.ipynb and 6.9 GiB to this"
        told = heard(third, "%tf_gpu plan limit 40%", promises)
        asked = third.run("%tf_gpu limit 40%")
        status = third.run("%tf_gpu")

    assert "promised" not in said
    assert "20.7 GiB of its 15.8 GiB are promised: " in told
    for text in (told, asked):
        assert promises in text
        assert "Not applied" not in text
    assert (
        "Memory of GPU 0 is promised and not taken yet: 6.9 GiB to first.ipynb and 6.9 GiB to second.ipynb." in status
    )
    assert machine.held() == 0


def test_the_second_cap_of_60_percent_is_told_and_a_killed_kernel_promises_nothing(
    hall: tuple[Machine, Server],
) -> None:
    _, server = hall
    with notebooks(server, "first.ipynb", "second.ipynb") as (first, second):
        first.run("%tf_gpu limit 60% --grow")
        told = heard(second, "%tf_gpu plan limit 60% --grow", "first.ipynb")
        kill(first)
        until(lambda: second.run("%tf_gpu plan limit 60% --grow"), lambda said: "promised" not in said)

    assert "20.2 GiB of its 15.8 GiB are promised: 10.1 GiB to first.ipynb and 10.1 GiB to this" in told


def test_a_gpu_is_divided_among_four_a_program_and_a_killed_kernel_among_them(hall: tuple[Machine, Server]) -> None:
    machine, server = hall
    with notebooks(server, "a.ipynb", "b.ipynb", "c.ipynb") as (one, two, three):
        one.run("%tf_gpu limit fair")
        two.run("%tf_gpu limit fair")
        with program(machine, _say, "%tf_gpu limit fair", imported=False):
            told = heard(three, "%tf_gpu limit fair", "for each of 4")
        heard(three, "%tf_gpu plan", "for each of 3")  # the program has ended
        kill(two)
        alone = heard(three, "%tf_gpu plan", "for each of 2")

    assert "3.1 GiB for each of 4: this, " in told
    for name in ("a.ipynb", "b.ipynb", "python"):
        assert name in told.partition("for each of 4")[2]
    assert "a.ipynb" in alone
    assert "b.ipynb" not in alone


def test_parts_are_fixed_at_import_and_hold_what_was_said_by_the_drivers_account(
    hall: tuple[Machine, Server],
) -> None:
    machine, server = hall
    with notebooks(server, "a.ipynb", "b.ipynb", "late.ipynb") as (one, two, late):
        one.run("%tf_gpu limit fair")
        heard(two, "%tf_gpu limit fair", "for each of 2")
        first = one.run(FIRST_OP)
        part = held(machine, one)[0]
        left = heard(late, "%tf_gpu plan limit fair", "for each of 2")
        late.run("%tf_gpu limit fair")
        said = heard(two, "%tf_gpu plan", "late.ipynb")
        two.run(FIRST_OP)
        late.run(FIRST_OP)
        sizes = held(machine, one, two, late)
        changed = one.run("%tf_gpu limit fair")

    (gpu,) = machine.gpus()
    half = (gpu.total - gpu.reserved - 2 * 512 * MIB - 1536 * MIB) // 2 // MIB * MIB  # less what CUDA's libraries need
    assert part == half + CONTEXT
    assert "`limit fair` is in force from TensorFlow's first op on: limit 6.6 GiB on GPU 0." in first
    assert "to a.ipynb" in left  # it keeps what it has taken
    assert "this and late.ipynb" in said
    assert sizes[0] == part
    # They share what is left; who comes last has, too, what the other's context takes less than was estimated.
    assert 0 <= sizes[2] - sizes[1] <= 512 * MIB - CONTEXT + MIB
    assert sum(sizes) < gpu.total - gpu.reserved
    assert "is in force already" in changed


def test_what_an_isolated_call_has_leased_counts_in_every_notebook(hall: tuple[Machine, Server]) -> None:
    _, server = hall
    with notebooks(server, "calls.ipynb", "other.ipynb") as (calls, other):
        calls.run("%%tf_gpu isolate --detach limit 8GiB\nimport time; time.sleep(600)")
        until(lambda: calls.run("%tf_gpu jobs"), lambda said: " running " in said, seconds=60)
        leased = heard(other, "%tf_gpu plan limit 8GiB --grow", "promised")
        # Its process begins when the fork server has imported TensorFlow; the lease is there before.
        told = heard(other, "%tf_gpu plan limit 8GiB --grow", "calls.ipynb's isolated call", seconds=90)
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
