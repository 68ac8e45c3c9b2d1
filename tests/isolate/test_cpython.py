"""CPython 3.11's own tests of process pools hold for `IsolatedExecutor`, but for a list of those that cannot."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

from tests.processes import PATIENCE, QUIET

pytestmark = pytest.mark.nightly

NO_POOL = "there is no pool: each call has a process of its own, so none is idle, used again or counted"
NOT_BROKEN = (
    "there is no pool that could break: what goes wrong in a call is the call's own error, and the next one runs"
)
PROGRAM = "its program imports the executor from concurrent.futures; test_future.py has a script that does the same"

LEFT_OUT = {
    "FailingInitializerMixin.test_initializer": NOT_BROKEN,
    "ProcessPoolShutdownTest.test_hang_gh83386": PROGRAM,
    "ProcessPoolShutdownTest.test_interpreter_shutdown": PROGRAM,
    "ProcessPoolShutdownTest.test_submit_after_interpreter_shutdown": PROGRAM,
    "ProcessPoolShutdownTest.test_processes_terminate": NO_POOL,
    "ProcessPoolExecutorTest.test_idle_process_reuse_multiple": NO_POOL,
    "ProcessPoolExecutorTest.test_idle_process_reuse_one": NO_POOL,
    "ProcessPoolExecutorTest.test_killed_child": NOT_BROKEN,
    "ProcessPoolExecutorTest.test_map_chunksize": NO_POOL,
    "ProcessPoolExecutorTest.test_max_tasks_early_shutdown": NO_POOL,
    "ProcessPoolExecutorTest.test_max_tasks_per_child": NO_POOL,
    "ProcessPoolExecutorTest.test_max_tasks_per_child_defaults_to_spawn_context": NO_POOL,
    "ProcessPoolExecutorTest.test_max_workers_too_large": "it is of Windows",
    "ProcessPoolExecutorTest.test_ressources_gced_in_workers": "a call's arguments go with its process, unfinalised",
    "ProcessPoolExecutorTest.test_saturation": NO_POOL,
    "ProcessPoolExecutorTest.test_traceback": "it wants their type of cause; test_failure.py has the story",
    "ExecutorDeadlockTest.test_error_at_task_unpickle": NOT_BROKEN,
    "ExecutorDeadlockTest.test_error_during_result_unpickle_in_result_handler": NOT_BROKEN,
    "ExecutorDeadlockTest.test_exit_at_task_unpickle": NOT_BROKEN,
    "ExecutorDeadlockTest.test_exit_during_result_unpickle_in_result_handler": NOT_BROKEN,
    "ExecutorDeadlockTest.test_shutdown_deadlock_pickle": "it waits for a thread that only their pool has",
}


@pytest.fixture(scope="module")
def ended() -> dict[str, str]:
    """How each of them ended."""
    if not platform.python_version().startswith("3.11."):
        pytest.skip("the list is of CPython 3.11's tests")
    program = [sys.executable, "-m", "tests.isolate.cpython"]
    done = subprocess.run(program, env=os.environ | QUIET, capture_output=True, text=True, timeout=2 * PATIENCE)
    assert done.returncode == 0, done.stderr
    outcomes: dict[str, str] = json.loads(done.stdout)
    return outcomes


def test_cpythons_own_tests_pass(ended: dict[str, str]) -> None:
    assert {name: how for name, how in ended.items() if name not in LEFT_OUT and how != "passed"} == {}
    assert len(ended) - len(LEFT_OUT) == 38


def test_what_is_left_out_is_there_and_would_fail(ended: dict[str, str]) -> None:
    assert [name for name in LEFT_OUT if ended.get(name, "is not there") in ("passed", "is not there")] == []
