"""Clusters that are full, slow to come, of another version, or closed to strangers; and calls in their order."""

from __future__ import annotations

import json
import pickletools
import subprocess
import time
from pathlib import Path
from typing import Any

import cloudpickle
import distributed
import pytest

from tests.isolate import on_cluster
from tests.isolate.clusters import Cluster, cluster, outcome, pids, running, scheduler, worker
from tests.processes import PATIENCE
from tests.waiting import until
from tfgpu_magic import IsolatedExecutor, Refused, WorkerDied
from tfgpu_magic.isolate import job_list
from tfgpu_magic.isolate.cluster import arrival, link, message
from tfgpu_magic.simgpu import Machine

__all__ = ["cluster"]  # the fixture


def test_what_dask_is_given_is_text_and_plain_data_and_no_code() -> None:
    task = cloudpickle.dumps(link.task(b"a request", [memoryview(b"work")]))
    steps = [(step.name, argument) for step, argument, _ in pickletools.genops(task)]
    looked_up = [name for name, _ in steps if name in ("GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD")]

    assert looked_up == ["STACK_GLOBAL"]
    assert [argument for _, argument in steps if isinstance(argument, str)][:2] == ["builtins", "eval"]
    compile(Path(arrival.__file__).read_text(), "arrival", "exec")


def test_a_worker_of_another_python_is_named_and_lives_on(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    here = message.versions()
    monkeypatch.setattr(message, "versions", lambda: here | {"Python": "3.7"})
    with IsolatedExecutor(cluster=cluster.address) as executor:
        error = outcome(executor.submit(pow, 2, 3))
        monkeypatch.setattr(message, "versions", lambda: here)

        assert isinstance(error, Refused)
        assert f"Python is {here['Python']} on " in str(error)
        assert "3.7 here" in str(error)
        assert executor.submit(pow, 2, 3).result(PATIENCE) == 8


@pytest.mark.parametrize("what", ["numpy", "cloudpickle", "tfgpu-magic"])
def test_versions_that_do_not_go_together_are_named(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    here = message.versions()
    monkeypatch.setattr(message, "versions", lambda: here | {what: "0"})
    with IsolatedExecutor(cluster=cluster.address) as executor:
        error = outcome(executor.submit(pow, 2, 3))

    assert isinstance(error, Refused)
    assert f"{what} is " in str(error)


def test_a_full_machine_takes_no_calls_from_one_with_room(cluster: Cluster) -> None:
    full, free = cluster.machines
    neighbour = full.add_neighbour("7GiB@0")
    try:
        with IsolatedExecutor(cluster=cluster.address, policy="limit 4GiB") as executor:
            places = [future.result(PATIENCE)[0] for future in [executor.submit(on_cluster.grow) for _ in range(6)]]
    finally:
        neighbour.stop()

    assert places == [str(free.path)] * 6


def test_where_all_machines_are_full_a_call_waits_and_then_says_who_is_in_the_way(cluster: Cluster) -> None:
    neighbours = [machine.add_neighbour("7GiB@0") for machine in cluster.machines]
    try:
        with IsolatedExecutor(cluster=cluster.address, policy="limit 4GiB", wait=1) as executor:
            error = outcome(executor.submit(on_cluster.grow))
        with IsolatedExecutor(cluster=cluster.address, policy="limit 4GiB", wait="2m") as executor:
            future = executor.submit(on_cluster.grow)
            time.sleep(1)
            neighbours.pop().stop()
            place, _ = future.result(PATIENCE)
    finally:
        for neighbour in neighbours:
            neighbour.stop()

    assert isinstance(error, Refused)
    assert "GPU 0: the limit is 4 GiB" in str(error)
    assert "This was on " in str(error)
    assert place == str(cluster.machines[1].path)


def test_a_call_that_rests_can_be_cancelled(cluster: Cluster) -> None:
    neighbours = [machine.add_neighbour("7GiB@0") for machine in cluster.machines]
    try:
        with IsolatedExecutor(cluster=cluster.address, policy="limit 4GiB", wait="10m") as executor:
            future = executor.submit(on_cluster.grow)
            until(lambda: getattr(executor._backend, "_resting", ()))
            assert future.cancel()
    finally:
        for neighbour in neighbours:
            neighbour.stop()


def test_a_call_that_runs_on_a_cluster_is_listed_and_can_be_stopped(cluster: Cluster, tmp_path: Path) -> None:
    with IsolatedExecutor(cluster=cluster.address) as executor:
        future = executor.submit(on_cluster.wait_for, tmp_path / "never", tmp_path / "begun")
        until(lambda: future.running() and pids(tmp_path / "begun"), seconds=PATIENCE)
        (standing,) = [one for one in job_list.statuses() if one.number == future.number]
        future.stop()

        with pytest.raises(WorkerDied, match="The call was stopped"):
            future.result(PATIENCE)
        assert standing.title.startswith("wait_for, on ")


def test_calls_run_in_the_order_in_which_they_were_submitted(tmp_path: Path) -> None:
    words = ("--resources", "GPU=1", "--no-nanny", "--local-directory", str(tmp_path))
    with (
        Machine.create("1x8GiB") as machine,
        scheduler() as (address, _),
        worker(address, machine, *words),
        IsolatedExecutor(cluster=address, wait="5m") as executor,
    ):
        executor.submit(on_cluster.wait_for, tmp_path / "go", tmp_path / "begun")
        until(lambda: pids(tmp_path / "begun"), seconds=PATIENCE)
        futures = [executor.submit(on_cluster.note, tmp_path / "order", number) for number in range(12)]
        (tmp_path / "go").touch()
        for future in futures:
            future.result(PATIENCE)

        assert pids(tmp_path / "order") == list(range(12))


def test_a_worker_that_comes_late_is_waited_for_as_long_as_is_said(tmp_path: Path) -> None:
    words = ("--resources", "GPU=1", "--no-nanny", "--local-directory", str(tmp_path))
    with (
        Machine.create("1x8GiB") as machine,
        scheduler() as (address, _),
        IsolatedExecutor(cluster=address, wait="5m") as patient,
        IsolatedExecutor(cluster=address, wait="1s") as hasty,
    ):
        late, never = patient.submit(pow, 2, 3), hasty.submit(pow, 2, 4)
        error = outcome(never)
        with worker(address, machine, *words):
            assert late.result(PATIENCE) == 8

    assert isinstance(error, Refused)
    assert "after 1 s (wait=)" in str(error)
    assert 'LocalCluster(resources={"GPU": 1})' in str(error)


def test_what_is_for_a_cluster_is_no_argument_without_one() -> None:
    with pytest.raises(TypeError, match="give cluster= too"):
        IsolatedExecutor(gpus=0, wait="10m")


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate that is its own authority, and its key."""
    key, made = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tfgpu-magic"]
    subprocess.run([*words, "-keyout", key, "-out", made], check=True, capture_output=True)
    return made, key


def test_a_cluster_with_tls_takes_calls_of_those_who_have_its_key_and_of_nobody_else(
    certificate: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, key = certificate
    tls = ("--tls-ca-file", str(made), "--tls-cert", str(made), "--tls-key", str(key))
    files: dict[str, Any] = {
        f"tls_{who}_{what}": str(file) for who in ("client",) for what, file in (("cert", made), ("key", key))
    }
    security = distributed.Security(tls_ca_file=str(made), require_encryption=True, **files)
    words = ("--resources", "GPU=1", "--no-nanny", "--local-directory", str(tmp_path))
    address_file = tmp_path / "scheduler.json"
    options = ("--host", "127.0.0.1", "--port", "0", "--protocol", "tls", "--scheduler-file", str(address_file))
    with (
        Machine.create("1x8GiB") as machine,
        running(None, "distributed.cli.dask_scheduler", *options, "--no-dashboard", *tls),
    ):
        until(address_file.exists, seconds=PATIENCE)
        address = until(lambda: json.loads(address_file.read_text())["address"])
        with worker(address, machine, *words, *tls):
            with IsolatedExecutor(cluster=address, security=security) as executor:
                assert executor.submit(pow, 2, 3).result(PATIENCE) == 8
            with (
                distributed.Client(address, security=security, set_as_default=False) as client,
                IsolatedExecutor(cluster=client) as executor,
            ):
                assert executor.submit(pow, 2, 4).result(PATIENCE) == 16
            monkeypatch.setattr("tfgpu_magic.isolate.cluster.link.CONNECT", 3.0)
            with pytest.raises(Refused, match="No Dask scheduler answers"):
                IsolatedExecutor(cluster=address)
