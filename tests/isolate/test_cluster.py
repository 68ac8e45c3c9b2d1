"""Isolated calls on a Dask cluster: where they run, what travels, and what comes home."""

from __future__ import annotations

import re
import socket
import sys
import threading
from pathlib import Path

import distributed
import numpy as np
import pytest

from tests.isolate import on_cluster
from tests.isolate.clusters import Cluster, cluster, executor, is_gone, outcome, pids, told
from tests.processes import PATIENCE
from tests.waiting import until
from tfgpu_magic import IsolatedExecutor, Refused, TimedOut, Unpicklable

__all__ = ["cluster", "executor"]  # the fixtures


# What it is for


def test_six_calls_use_the_gpus_of_both_machines_and_give_all_back(
    executor: IsolatedExecutor, cluster: Cluster
) -> None:
    answers = [future.result(PATIENCE) for future in [executor.submit(on_cluster.grow) for _ in range(6)]]

    assert {path for path, _ in answers} == {str(machine.path) for machine in cluster.machines}
    assert all(held > 0 for _, held in answers)
    for machine in cluster.machines:
        assert (machine.held(), machine.processes()) == (0, [])


def test_a_policy_is_the_callers_and_holds_by_the_drivers_account(cluster: Cluster) -> None:
    with IsolatedExecutor(cluster=cluster.address, policy="limit 1GiB") as executor:
        _, held = executor.submit(on_cluster.grow).result(PATIENCE)

    assert 2**30 <= held < 2 * 2**30


def test_nobody_on_the_way_imports_tensorflow(executor: IsolatedExecutor, cluster: Cluster) -> None:
    executor.submit(on_cluster.grow).result(PATIENCE)
    with distributed.Client(cluster.address, set_as_default=False) as client:
        there = {**client.run(on_cluster.imported), "scheduler": client.run_on_scheduler(on_cluster.imported)}

    assert len(there) == 3
    assert set().union(*there.values()) == set()
    assert "tensorflow" not in sys.modules


def test_the_environment_of_a_call_is_its_workers(executor: IsolatedExecutor) -> None:
    there = executor.submit(on_cluster.environment).result(PATIENCE)

    assert there["variable"] in ("one", "two")
    assert "dask_worker" in " ".join(there["argv"]) or "multiprocessing" in " ".join(there["argv"])


def test_large_arrays_cross_both_ways_and_come_back_writable(executor: IsolatedExecutor) -> None:
    array = np.arange(2**23, dtype=np.float32)  # 32 MiB, of which Dask itself would warn

    back = executor.submit(on_cluster.add_tensor, array).result(PATIENCE)

    np.testing.assert_array_equal(array + 1, back)
    assert back.flags.writeable


def test_a_workers_own_process_keeps_nothing_of_a_call(executor: IsolatedExecutor, cluster: Cluster) -> None:
    array = np.zeros(2**23)
    executor.submit(len, array).result(PATIENCE)
    with distributed.Client(cluster.address, set_as_default=False) as client:
        before = client.run(on_cluster.resident)
        for _ in range(6):
            executor.submit(len, array).result(PATIENCE)

        def grown() -> int:
            after = client.run(on_cluster.resident)
            return max(int(after[address] - before[address]) for address in before)

        until(lambda: grown() < array.nbytes)


def test_what_a_notebook_defines_travels_and_map_keeps_the_order(executor: IsolatedExecutor) -> None:
    base = 10

    assert list(executor.map(lambda x: base + x, range(5), timeout=PATIENCE)) == [10, 11, 12, 13, 14]


def test_a_client_that_was_given_stays_open(cluster: Cluster) -> None:
    with distributed.Client(cluster.address, set_as_default=False) as client:
        with IsolatedExecutor(cluster=client) as first, IsolatedExecutor(cluster=client, gpus=0) as second:
            futures = [first.submit(pow, 2, 3), second.submit(pow, 2, 4)]
            assert [future.result(PATIENCE) for future in futures] == [8, 16]

        assert client.status == "running"
        assert client.submit(pow, 2, 5).result(PATIENCE) == 32
        with IsolatedExecutor(cluster=client, max_workers=1) as third:
            assert list(third.map(pow, range(4), range(4), timeout=PATIENCE)) == [1, 1, 4, 27]


# What comes home


def test_output_is_seen_while_the_call_runs(
    executor: IsolatedExecutor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = {"out": "", "err": ""}

    def heard() -> bool:
        out, err = capsys.readouterr()
        seen["out"], seen["err"] = seen["out"] + out, seen["err"] + err
        return "it has begun\n" in seen["out"] and "and so it says\n" in seen["err"]

    future = executor.submit(on_cluster.wait_for, tmp_path / "go", tmp_path / "begun")
    until(heard, seconds=PATIENCE)
    assert future.running()
    (tmp_path / "go").touch()

    assert future.result(PATIENCE) == "done"


def test_a_flood_is_cut_and_says_so(executor: IsolatedExecutor, capsys: pytest.CaptureFixture[str]) -> None:
    assert executor.submit(on_cluster.flood, 20).result(PATIENCE) == "done"

    out = capsys.readouterr().out
    assert len(out) < 8 * 2**20
    assert f"{20 * 2**10 - 1:>9} xxx" in out  # its end is there
    assert re.search(r"\[\d+ characters that it printed were left out", out)


def test_exceptions_are_raised_as_their_own_type_with_their_story(executor: IsolatedExecutor) -> None:
    with pytest.raises(ValueError, match="wrong") as wrong:
        executor.submit(on_cluster.fail, "value").result(PATIENCE)
    with pytest.raises(on_cluster.Odd, match="7 at there") as odd:
        executor.submit(on_cluster.fail, "odd").result(PATIENCE)

    assert "on_cluster.py" in str(wrong.value.__cause__)
    assert f"This was on {socket.gethostname()} (Dask worker " in str(wrong.value.__cause__)
    assert odd.value.code == 7


@pytest.mark.parametrize(("kind", "text"), [("lock", "lock"), ("module", "TensorFlow")])
def test_a_result_that_cannot_come_home_is_named(executor: IsolatedExecutor, kind: str, text: str) -> None:
    with pytest.raises(Unpicklable, match=text) as error:
        executor.submit(on_cluster.fail, kind).result(PATIENCE)

    assert "the result of fail" in str(error.value)


def test_an_argument_that_cannot_travel_is_named_by_the_future(executor: IsolatedExecutor) -> None:
    future = executor.submit(on_cluster.fail, threading.Lock())  # type: ignore[arg-type]

    assert "argument 1 of fail" in told(future.exception(PATIENCE) or AssertionError())


def test_a_call_that_takes_too_long_is_ended(cluster: Cluster, tmp_path: Path) -> None:
    with IsolatedExecutor(cluster=cluster.address, timeout="1s") as executor:
        error = outcome(executor.submit(on_cluster.wait_for, tmp_path / "never", tmp_path / "begun"))

    assert isinstance(error, TimedOut)
    assert "took longer than 1 s" in str(error)
    assert is_gone(pids(tmp_path / "begun")[0])


def test_a_refused_policy_says_on_which_machine(cluster: Cluster) -> None:
    with IsolatedExecutor(cluster=cluster.address, policy="limit 64GiB") as executor:
        error = outcome(executor.submit(on_cluster.grow))

    assert isinstance(error, Refused)
    assert "64 GiB" in str(error)
    assert f"This was on {socket.gethostname()} (Dask worker " in str(error)
