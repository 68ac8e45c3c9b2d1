"""What notebooks of one user have promised each other of a GPU: real kernels of a real server, on simulated GPUs."""

from __future__ import annotations

import os
import signal

from tests.jupyter import Notebook, Server, notebooks
from tests.machines import machine_of
from tests.waiting import until

machine = machine_of("1x16GiB")


def heard(notebook: Notebook, code: str, part: str, *, seconds: float = 20.0) -> str:
    """Run a cell until it says so: the others' reports come within a second or two of what they report."""
    return until(lambda: notebook.run(code), lambda said: part in said, seconds=seconds, every=0.2)


def test_the_second_cap_of_60_percent_is_told_and_a_killed_kernel_promises_nothing(
    server: Server,
) -> None:
    with notebooks(server, "first.ipynb", "second.ipynb") as (first, second):
        first.run("%tf_gpu limit 60% --grow")
        told = heard(second, "%tf_gpu plan limit 60% --grow", "first.ipynb")
        asked = second.run("%tf_gpu limit 60% --grow")
        status = second.run("%tf_gpu")
        os.kill(first.pid, signal.SIGKILL)  # as a crash does
        until(lambda: second.run("%tf_gpu plan limit 60% --grow"), lambda said: "promised" not in said)

    assert "20.2 GiB of its 15.8 GiB are promised: 10.1 GiB to first.ipynb and 10.1 GiB to this" in told
    assert "promised: " in asked
    assert "Not applied" not in asked
    assert "Memory of GPU 0 is promised and not taken yet: 10.1 GiB to first.ipynb" in status


def test_what_an_isolated_call_has_leased_counts_in_every_notebook(server: Server) -> None:
    with notebooks(server, "calls.ipynb", "other.ipynb") as (calls, other):
        calls.run("%%tf_gpu isolate --detach limit 8GiB\nimport time; time.sleep(600)")
        until(lambda: calls.run("%tf_gpu jobs"), lambda said: " running " in said, seconds=60)
        leased = heard(other, "%tf_gpu plan limit 8GiB --grow", "promised")
        # Its process begins when the fork server has imported TensorFlow; the lease is there before.
        told = heard(other, "%tf_gpu plan limit 8GiB --grow", "calls.ipynb's isolated call", seconds=90)
        calls.run("%tf_gpu jobs stop 1")
        freed = until(lambda: other.run("%tf_gpu plan limit 8GiB --grow"), lambda said: "promised" not in said)

    assert "8.5 GiB to " in leased
    assert "8.5 GiB to calls.ipynb's isolated call and 8.5 GiB to this" in told
    assert "grows" in freed
