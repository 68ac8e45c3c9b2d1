"""Isolated calls on a Dask cluster: a scheduler and two workers, each on a simulated GPU machine of its own."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import psutil
import pytest

from tests.isolate import on_cluster
from tests.processes import PATIENCE, QUIET
from tests.slack import SLACK
from tfgpu_magic import IsolatedExecutor, Refused, TimedOut, Unpicklable, WorkerDied
from tfgpu_magic.isolate.cluster import executor as room
from tfgpu_magic.isolate.cluster import link
from tfgpu_magic.simgpu import Machine

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Cluster:
    address: str
    machines: tuple[Machine, Machine]


@contextmanager
def running(machine: Machine | None, *command: str, **variables: str) -> Iterator[subprocess.Popen[Any]]:
    """A program of Dask's, which ends with the block and takes its own children along."""
    outside = {**os.environ, **QUIET, "PYTHONPATH": str(ROOT), **variables}
    environment = outside if machine is None else machine.environ(outside)
    with subprocess.Popen([sys.executable, "-m", *command], env=environment) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


def answers(port: int) -> bool:
    with socket.socket() as ours:
        return ours.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def scheduler() -> Iterator[tuple[str, subprocess.Popen[Any]]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ("--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
    with running(None, "distributed.cli.dask_scheduler", *words) as process:
        until(lambda: answers(port), PATIENCE)
        yield f"tcp://127.0.0.1:{port}", process


@contextmanager
def worker(address: str, machine: Machine | None, *words: str, **variables: str) -> Iterator[None]:
    with running(machine, "distributed.cli.dask_worker", address, "--no-dashboard", *words, **variables):
        yield


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With warm workers; every variable but those of the tests comes from here."""
    words = ("--resources", "GPU=1", "--nthreads", "4", "--local-directory")
    folders = [str(tmp_path_factory.mktemp("worker")) for _ in range(2)]
    with (
        Machine.create("1x8GiB") as one,
        Machine.create("1x8GiB") as two,
        scheduler() as (address, _),
        worker(address, one, *words, folders[0], "--name", "one", ON_THIS_MACHINE="one"),
        worker(address, two, *words, folders[1], "--name", "two", ON_THIS_MACHINE="two"),
    ):
        yield Cluster(address, (one, two))


@pytest.fixture(scope="module")
def executor(cluster: Cluster) -> Iterator[IsolatedExecutor]:
    with IsolatedExecutor(cluster=cluster.address) as executor:
        yield executor


def until(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    end = time.monotonic() + seconds * SLACK
    while not (value := condition()):
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.05)
    return value


def pids(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid)


def told(error: BaseException) -> str:
    return re.sub(r"\s+", " ", str(error))


def outcome(future: Any) -> BaseException:
    with pytest.raises(BaseException) as caught:  # whichever; the test looks
        future.result(PATIENCE)
    return caught.value


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
    until(heard, PATIENCE)
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


# What dies


def test_a_crash_is_reported_once_and_not_run_again(executor: IsolatedExecutor, tmp_path: Path) -> None:
    with pytest.raises(WorkerDied, match="SIGSEGV"):
        executor.submit(on_cluster.crash, tmp_path / "ran").result(PATIENCE)
    with pytest.raises(WorkerDied, match="exit status 3"):
        executor.submit(on_cluster.fail, "exit").result(PATIENCE)

    time.sleep(0.5)
    assert len(pids(tmp_path / "ran")) == 1


def test_a_call_whose_worker_is_killed_is_reported_and_not_run_again(
    executor: IsolatedExecutor, tmp_path: Path
) -> None:
    future = executor.submit(on_cluster.wait_for, tmp_path / "never", tmp_path / "begun")
    (pid,) = until(lambda: pids(tmp_path / "begun"), PATIENCE)
    _nursery, dask = psutil.Process(pid).parents()[:2]
    assert "forkserver" not in " ".join(dask.cmdline())
    dask.kill()

    with pytest.raises(WorkerDied, match=r"was lost.*not run again"):
        future.result(PATIENCE)
    until(lambda: is_gone(pid))
    assert pids(tmp_path / "begun") == [pid]
    assert len(set(executor.map(lambda _: os.getpid(), range(4), timeout=PATIENCE))) == 4  # the cluster goes on


def test_calls_end_when_their_caller_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    code = f"""
        from pathlib import Path
        from tests.isolate import on_cluster
        from tfgpu_magic import IsolatedExecutor
        folder, executor = Path({str(tmp_path)!r}), IsolatedExecutor(cluster={cluster.address!r})
        executor.submit(on_cluster.wait_for, folder / "never", folder / "begun").result()
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT) as caller:
        (pid,) = until(lambda: pids(tmp_path / "begun"), PATIENCE)
        caller.kill()

    until(lambda: is_gone(pid))
    with distributed.Client(cluster.address, set_as_default=False) as client:
        until(lambda: not client.run_on_scheduler(guards))  # nor does anything of them stay at the scheduler


def guards(dask_scheduler: Any) -> list[str]:
    """The events that say that a call has begun."""
    return [name for name in dask_scheduler.extensions["events"]._events if "wait_for" in str(name)]


def test_all_calls_can_be_ended(cluster: Cluster, tmp_path: Path) -> None:
    executor = IsolatedExecutor(cluster=cluster.address)
    futures = [executor.submit(on_cluster.wait_for, tmp_path / "never", tmp_path / "begun") for _ in range(4)]
    until(lambda: len(pids(tmp_path / "begun")) == 2, PATIENCE)
    until(lambda: sum(future.running() for future in futures) == 2)

    executor.terminate_workers()
    executor.shutdown()

    assert sorted(type(error).__name__ for error in map(outcome, futures)) == [
        "CancelledError", "CancelledError", "WorkerDied", "WorkerDied",
    ]  # fmt: skip
    until(lambda: all(map(is_gone, pids(tmp_path / "begun"))))
    assert len(pids(tmp_path / "begun")) == 2
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(pow, 2, 3)


def test_a_waiting_call_can_be_cancelled_and_never_runs(executor: IsolatedExecutor, tmp_path: Path) -> None:
    running = [executor.submit(on_cluster.wait_for, tmp_path / "go", tmp_path / "begun") for _ in range(2)]
    until(lambda: all(future.running() for future in running), PATIENCE)
    waiting = executor.submit(on_cluster.wait_for, tmp_path / "go", tmp_path / "other")

    assert (waiting.cancel(), running[0].cancel()) == (True, False)
    (tmp_path / "go").touch()

    assert [future.result(PATIENCE) for future in running] == ["done", "done"]
    assert executor.submit(pow, 2, 3).result(PATIENCE) == 8
    assert not (tmp_path / "other").exists()


def test_a_scheduler_that_dies_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "CONNECT", 3.0)  # it is tried so long to find it again
    with scheduler() as (address, process), IsolatedExecutor(cluster=address) as executor:
        future = executor.submit(pow, 2, 3)
        time.sleep(0.3)
        process.send_signal(signal.SIGKILL)

        with pytest.raises(WorkerDied, match=f"scheduler at {address} was lost"):
            future.result(20)


# What cannot be


def test_an_address_where_nobody_is_is_named_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "CONNECT", 1.0)

    with pytest.raises(Refused, match=r"No Dask scheduler answers at tcp://127.0.0.1:1 .*dask scheduler"):
        IsolatedExecutor(cluster="tcp://127.0.0.1:1")
    with pytest.raises(Refused, match="No Dask scheduler answers at nonsense:"):
        IsolatedExecutor(cluster="nonsense://")


def test_a_call_that_no_worker_can_have_names_the_workers(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PATIENCE", 1.0)
    with IsolatedExecutor(cluster=cluster.address, gpus=3) as executor:
        error = outcome(executor.submit(pow, 2, 3))

    assert isinstance(error, Refused)
    assert "No Dask worker offers 3 GPUs" in str(error)
    assert str(error).count("(GPU=1)") == 2
    assert f'dask worker {cluster.address} --resources "GPU=3"' in str(error)


def test_a_worker_without_this_package_is_named(cluster: Cluster, tmp_path: Path) -> None:
    bare = tmp_path / "bare.py"
    bare.write_text("import sys\nsys.modules['tfgpu_magic'] = None\n")
    words = ("--resources", "GPU=8", "--preload", str(bare), "--no-nanny", "--local-directory", str(tmp_path))
    with worker(cluster.address, None, *words), IsolatedExecutor(cluster=cluster.address, gpus=8) as executor:
        error = outcome(executor.submit(pow, 2, 3))

    assert isinstance(error, Refused)
    assert re.search(f"no tfgpu_magic on {socket.gethostname()}.*pip install", str(error))


def test_dask_is_imported_when_a_cluster_is_asked_for_and_its_absence_is_told() -> None:
    code = """
        import sys
        import tfgpu_magic.isolate.cluster.executor, tfgpu_magic.isolate.executor, tfgpu_magic.isolate.cluster.remote
        print({"dask", "distributed"} & set(sys.modules))
        sys.modules["distributed"] = None
        try:
            tfgpu_magic.IsolatedExecutor(cluster="tcp://nowhere:8786")
        except tfgpu_magic.Refused as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, cwd=ROOT)

    assert done.stdout.startswith("set()\n")
    assert "pip install 'tfgpu-magic[dask]'" in done.stdout
