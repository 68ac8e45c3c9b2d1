"""Isolated calls on a Dask cluster that die, are ended, or cannot be begun: each is told, in bounded time."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import distributed
import psutil
import pytest
from distributed.utils import LoopRunner

from tests.isolate import on_cluster
from tests.isolate.clusters import ROOT, Cluster, cluster, executor, is_gone, outcome, pids, scheduler, worker
from tests.processes import PATIENCE
from tests.waiting import until
from tfgpu_magic import IsolatedExecutor, Refused, WorkerDied
from tfgpu_magic.isolate.cluster import backend as room
from tfgpu_magic.isolate.cluster import link

__all__ = ["cluster", "executor"]  # the fixtures


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
    (pid,) = until(lambda: pids(tmp_path / "begun"), seconds=PATIENCE)
    _server, dask = psutil.Process(pid).parents()[:2]
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
        (pid,) = until(lambda: pids(tmp_path / "begun"), seconds=PATIENCE)
        caller.kill()

    until(lambda: is_gone(pid))
    with distributed.Client(cluster.address, set_as_default=False) as client:
        until(lambda: not client.run_on_scheduler(guards))  # nor does anything of them stay at the scheduler


def guards(dask_scheduler: Any) -> list[str]:
    """Return the events that say that a call has begun."""
    return [name for name in dask_scheduler.extensions["events"]._events if "wait_for" in str(name)]


def test_all_calls_can_be_ended(cluster: Cluster, tmp_path: Path) -> None:
    executor = IsolatedExecutor(cluster=cluster.address)
    futures = [executor.submit(on_cluster.wait_for, tmp_path / "never", tmp_path / "begun") for _ in range(4)]
    until(lambda: len(pids(tmp_path / "begun")) == 2, seconds=PATIENCE)
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
    until(lambda: all(future.running() for future in running), seconds=PATIENCE)
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


def test_a_client_whose_event_loop_was_late_is_made_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    start, attempts = LoopRunner.start, []

    def late(runner: LoopRunner) -> None:
        attempts.append(runner)
        assert len(attempts) > 1  # as Dask says it ten seconds after the thread was started
        start(runner)

    monkeypatch.setattr(LoopRunner, "start", late)
    with IsolatedExecutor(cluster=cluster.address) as executor:
        assert executor.submit(pow, 2, 3).result(PATIENCE) == 8


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
        import tfgpu_magic.isolate.cluster.backend, tfgpu_magic.isolate.executor, tfgpu_magic.isolate.cluster.remote
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
