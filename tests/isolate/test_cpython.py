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

POOL, DEADLOCK, SHUTDOWN = "ProcessPoolExecutorTest", "ExecutorDeadlockTest", "ProcessPoolShutdownTest"

LEFT_OUT = {
    PROGRAM: {SHUTDOWN: "hang_gh83386 interpreter_shutdown submit_after_interpreter_shutdown"},
    NO_POOL: {
        SHUTDOWN: "processes_terminate",
        POOL: "idle_process_reuse_multiple idle_process_reuse_one map_chunksize max_tasks_early_shutdown "
        "max_tasks_per_child max_tasks_per_child_defaults_to_spawn_context saturation",
    },
    NOT_BROKEN: {
        "FailingInitializerMixin": "initializer",
        POOL: "killed_child",
        DEADLOCK: "error_at_task_unpickle error_during_result_unpickle_in_result_handler exit_at_task_unpickle "
        "exit_during_result_unpickle_in_result_handler",
    },
    "it is of Windows": {POOL: "max_workers_too_large"},
    "a call's arguments go with its process, unfinalised": {POOL: "ressources_gced_in_workers"},
    "it wants their type of cause; test_failure.py has the story": {POOL: "traceback"},
    "it waits for a thread that only their pool has": {DEADLOCK: "shutdown_deadlock_pickle"},
}
"""Those that do not pass, by the reason."""


def test_cpythons_own_tests_pass_but_those_that_cannot() -> None:
    if not platform.python_version().startswith("3.11."):
        pytest.skip("the list is of CPython 3.11's tests")
    program = [sys.executable, "-m", "tests.isolate.cpython"]
    done = subprocess.run(program, env=os.environ | QUIET, capture_output=True, text=True, timeout=2 * PATIENCE)
    assert done.returncode == 0, done.stderr
    ended: dict[str, str] = json.loads(done.stdout)
    fails = {name: how for name, how in ended.items() if how != "passed"}

    kinds = [kind for reason in LEFT_OUT.values() for kind in reason.items()]
    left_out = {f"{kind}.test_{name}" for kind, names in kinds for name in names.split()}
    assert fails.keys() == left_out, fails
    assert len(ended) - len(fails) == 38
