"""Isolated functions on a Dask cluster of two workers, each on a simulated GPU machine of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import distributed
import numpy as np
import psutil
import pytest

from tests.isolate import deeds, on_cluster
from tests.jupyter import free_port
from tests.processes import PATIENCE, QUIET
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic import Raised, Refused, TimedOut, Unpicklable, WorkerDied, isolated
from tfgpu_magic.isolate.dask import Task
from tfgpu_magic.isolate.executor import Isolated
from tfgpu_magic.simgpu import Machine

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]

Begins: TypeAlias = Callable[[Callable[..., Any]], tuple[Any, int]]


@contextmanager
def running(machine: Machine | None, *command: str, **variables: str) -> Iterator[None]:
    """Run a program of Dask's until the block ends, and its own children with it."""
    outside = {**os.environ, **QUIET, "PYTHONPATH": str(ROOT), **variables}
    environment = outside if machine is None else machine.environ(outside)
    with subprocess.Popen([sys.executable, "-m", *command, "--no-dashboard"], env=environment) as process:
        try:
            yield
        finally:
            process.terminate()
            psutil.wait_procs([psutil.Process(process.pid)], timeout=15)
            process.kill()


def answers(port: int) -> bool:
    with socket.socket() as ours:
        return ours.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def machines() -> Iterator[tuple[Machine, Machine]]:
    with Machine.create("1x8GiB") as one, Machine.create("1x8GiB") as two:
        yield one, two


@pytest.fixture(scope="module")
def client(machines: tuple[Machine, Machine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[distributed.Client]:
    """A client of a scheduler and two warm workers, each of which names its machine in its environment."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    words = (address, "--resources", "GPU=1", "--nthreads", "4", "--preload", "tfgpu_magic.isolate.dask")
    one, two = (
        ("distributed.cli.dask_worker", *words, "--local-directory", str(tmp_path_factory.mktemp("worker")))
        for _ in range(2)
    )
    with running(None, "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port)):
        until(lambda: answers(port), seconds=PATIENCE)
        with (
            running(machines[0], *one, ON_THIS_MACHINE="one"),
            running(machines[1], *two, ON_THIS_MACHINE="two"),
            distributed.Client(address, set_as_default=False) as client,
        ):
            client.wait_for_workers(2, timeout=PATIENCE)
            yield client


def submitted(client: distributed.Client, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Submit a function as its page says."""
    one = Task(function) if isinstance(function, Isolated) else function
    return client.submit(one, *args, resources={"GPU": 1}, pure=False, **kwargs)


def without_gpu(function: Callable[..., Any]) -> Any:
    return isolated(gpus=0)(function)


def pids(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid)


@pytest.fixture
def begins(client: distributed.Client, tmp_path: Path) -> Begins:
    """Submits what waits for the file `go`; returns the future, and the process once it is there."""

    def begin(function: Callable[..., Any]) -> tuple[Any, int]:
        future = submitted(client, without_gpu(function), tmp_path / "go", tmp_path / "begun")
        (pid,) = until(lambda: pids(tmp_path / "begun"), seconds=PATIENCE)
        return future, pid

    return begin


# What it is for


def test_calls_use_the_gpus_of_both_machines_within_their_policy_and_give_all_back(
    client: distributed.Client, machines: tuple[Machine, Machine]
) -> None:
    grow = isolated(policy="limit 1GiB")(on_cluster.grow)
    executor = client.get_executor(pure=False, resources={"GPU": 1})

    found = [future.result(PATIENCE) for future in [executor.submit(Task(grow)) for _ in range(6)]]

    assert {path for path, _ in found} == {str(machine.path) for machine in machines}
    assert all(2**30 <= held < 2 * 2**30 for _, held in found)
    for machine in machines:
        assert (machine.held(), machine.processes()) == (0, [])


def test_no_process_of_dasks_imports_what_a_call_imports(client: distributed.Client) -> None:
    submitted(client, isolated(on_cluster.grow)).result(PATIENCE)
    names = {"tensorflow", "keras", on_cluster.__name__}

    def modules() -> set[str]:
        return names & set(sys.modules)

    there = {**client.run(modules), "scheduler": client.run_on_scheduler(modules)}

    assert len(there) == 3
    assert set().union(*there.values()) == set()
    assert "tensorflow" not in sys.modules


def test_a_call_has_the_environment_of_its_worker(client: distributed.Client) -> None:
    assert submitted(client, without_gpu(os.getenv), "ON_THIS_MACHINE").result(PATIENCE) in ("one", "two")


def test_large_arrays_and_the_values_of_other_tasks_travel(client: distributed.Client) -> None:
    array = np.arange(2**21, dtype=np.float32)

    there = client.scatter(array)
    first = submitted(client, without_gpu(on_cluster.add_tensor), there)
    second = submitted(client, without_gpu(on_cluster.add_tensor), first)

    np.testing.assert_array_equal(array + 2, second.result(PATIENCE))


def test_versions_are_compared_by_dask(client: distributed.Client) -> None:
    found = client.get_versions(check=True, packages=["tfgpu_magic"])

    assert {one["packages"]["tfgpu_magic"] for one in found["workers"].values()} == {
        found["client"]["packages"]["tfgpu_magic"]
    }


# What comes home


def test_output_is_seen_while_the_call_runs(
    client: distributed.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = {"out": "", "err": ""}

    def heard() -> bool:
        out, err = capsys.readouterr()
        seen["out"], seen["err"] = seen["out"] + out, seen["err"] + err
        return "it has begun\n" in seen["out"] and "and so it says\n" in seen["err"]

    future = submitted(client, without_gpu(on_cluster.wait_for), tmp_path / "go", tmp_path / "begun")
    until(heard, seconds=PATIENCE)
    assert not future.done()
    (tmp_path / "go").touch()

    assert future.result(PATIENCE) == "done"


FAILURES: list[tuple[Callable[..., Any], tuple[Any, ...], type[Exception], str]] = [
    (deeds.fail, (ValueError("wrong"),), ValueError, "wrong"),
    (deeds.fail_needs_more, (), deeds.NeedsMore, "no /there"),
    (sys.exit, (3,), Raised, "SystemExit: 3"),
    (threading.Lock, (), Unpicklable, "the result of .*lock.* cannot"),
    (lambda: __import__("tensorflow"), (), Unpicklable, "TensorFlow"),
    (deeds.segfault, (), WorkerDied, "(?s)SIGSEGV.*This was on .* \\(Dask worker "),
]


@pytest.mark.parametrize(("function", "args", "kind", "said"), FAILURES)
def test_what_goes_wrong_in_a_call_is_raised_as_its_own_type_and_its_worker_lives_on(
    client: distributed.Client, function: Callable[..., Any], args: tuple[Any, ...], kind: type[Exception], said: str
) -> None:
    before = set(client.scheduler_info()["workers"])
    with pytest.raises(kind, match=said) as caught:
        submitted(client, without_gpu(function), *args).result(PATIENCE)

    assert kind is not ValueError or "deeds.py" in str(caught.value.__cause__)  # the traceback from there
    assert getattr(caught.value, "path", "/there") == "/there"
    assert before <= set(client.scheduler_info()["workers"])


def test_what_cannot_be_sent_or_had_is_named(client: distributed.Client) -> None:
    lock = threading.Lock()
    with pytest.raises(Unpicklable, match="lock"):
        Task(without_gpu(lambda: lock))
    with pytest.raises(Refused, match=f"(?s)64 GiB.*This was on {socket.gethostname()} "):
        submitted(client, isolated(policy="limit 64GiB")(on_cluster.grow)).result(PATIENCE)


# What ends


def test_a_call_that_takes_too_long_is_ended(client: distributed.Client, tmp_path: Path) -> None:
    slow = isolated(gpus=0, timeout=1.0 * SLACK)(on_cluster.wait_for)
    with pytest.raises(TimedOut, match=f"took longer than {SLACK:g} s"):
        submitted(client, slow, tmp_path / "never", tmp_path / "begun").result(PATIENCE)

    assert is_gone(pids(tmp_path / "begun")[0])


def test_a_call_that_is_cancelled_ends(client: distributed.Client, begins: Begins) -> None:
    future, pid = begins(on_cluster.wait_for)
    future.cancel()

    until(lambda: is_gone(pid))
    assert submitted(client, pow, 2, 3).result(PATIENCE) == 8


def test_a_call_that_is_cancelled_and_ignores_that_is_killed(client: distributed.Client, begins: Begins) -> None:
    before = client.run(on_cluster.set_grace, 1.0)
    future, pid = begins(on_cluster.ignore_interrupts)
    future.cancel()

    until(lambda: is_gone(pid), seconds=PATIENCE)
    client.run(on_cluster.set_grace, min(before.values()))


def test_calls_end_when_their_client_is_killed(client: distributed.Client, tmp_path: Path) -> None:
    code = f"""
        from pathlib import Path
        from distributed import Client
        from tests.isolate import deeds, on_cluster
        from tfgpu_magic import isolated
        from tfgpu_magic.isolate.dask import Task
        folder, client = Path({str(tmp_path)!r}), Client({client.scheduler.address!r})
        client.submit(Task(isolated(gpus=0)(on_cluster.wait_for)), folder / "never", folder / "begun").result()
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT) as caller:
        (pid,) = until(lambda: pids(tmp_path / "begun"), seconds=PATIENCE)
        caller.kill()

    until(lambda: is_gone(pid), seconds=PATIENCE)


def test_a_call_whose_worker_is_killed_is_run_again_elsewhere_and_ends_where_it_was(
    begins: Begins, tmp_path: Path
) -> None:
    future, pid = begins(on_cluster.wait_for)
    psutil.Process(pid).parents()[1].kill()

    _, second = until(lambda: pids(tmp_path / "begun")[1:] and pids(tmp_path / "begun"), seconds=PATIENCE)
    until(lambda: is_gone(pid))
    assert second != pid
    (tmp_path / "go").touch()
    assert future.result(PATIENCE) == "done"
