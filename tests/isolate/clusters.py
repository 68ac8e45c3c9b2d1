"""A Dask cluster for tests: a scheduler and two workers, each on a simulated GPU machine of its own."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.processes import PATIENCE, QUIET
from tests.waiting import until
from tfgpu_magic import IsolatedExecutor
from tfgpu_magic.simgpu import Machine

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Cluster:
    address: str
    machines: tuple[Machine, Machine]


@contextmanager
def running(machine: Machine | None, *command: str, **variables: str) -> Iterator[subprocess.Popen[Any]]:
    """Run a program of Dask's until the block ends, and its own children with it."""
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
        until(lambda: answers(port), seconds=PATIENCE)
        yield f"tcp://127.0.0.1:{port}", process


@contextmanager
def worker(address: str, machine: Machine | None, *words: str, **variables: str) -> Iterator[None]:
    with running(machine, "distributed.cli.dask_worker", address, "--no-dashboard", *words, **variables):
        yield


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with warm workers, which have the variables of the tests and no others."""
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
