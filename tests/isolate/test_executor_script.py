"""`IsolatedExecutor` in a script: an executor as any other, and Ctrl-C is for its calls, too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.processes import QUIET
from tests.sizes import CONTEXT, GIB
from tests.waiting import until
from tfgpu_magic import IsolatedExecutor, WorkerDied
from tfgpu_magic.simgpu import Machine

SCRIPT = """
import atexit, os, sys, time
from tfgpu_magic import IsolatedExecutor

@atexit.register
def too_late():
    try:
        executor.submit(print)
    except RuntimeError as error:
        print(str(error)[:27], flush=True)

def held(pid):
    from tfgpu_magic.simgpu import Machine
    return Machine.current().held(pid=pid)

def train(factor):
    import tensorflow as tf
    tf.zeros(1000)
    return factor * SCALE, held(os.getpid())

def late():
    time.sleep(0.5)
    os.write(1, b"late\\n")

SCALE = 10
if __name__ == "__main__":
    executor = IsolatedExecutor(2, policy="limit 1GiB")
    print(list(executor.map(train, [1, 2])), flush=True)
    print(held(os.getpid()), "tensorflow" in sys.modules, flush=True)
    slow = executor.submit(time.sleep, 1.5)
    try:
        print("waiting", flush=True)
        slow.result()
    except KeyboardInterrupt:
        print("interrupted", slow.running(), slow.result(), flush=True)
    executor.submit(late)
    other = IsolatedExecutor(1, gpus=0)
    other.submit(late)
    other.shutdown(wait=False)
"""


def test_in_a_script_it_is_an_executor_as_any_other(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with Machine.create("2x8GiB") as machine:
        process = machine.popen(
            [sys.executable, script], env=QUIET, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=240)

        assert lines == [f"{[(10, GIB + CONTEXT), (20, GIB + CONTEXT)]}\n", "0 False\n", "waiting\n"]
        # The call went on, and so does what was submitted at the end; at the very end nothing can be any more.
        assert out == "interrupted True None\nlate\nlate\ncannot schedule new futures\n"
        assert err == ""
        assert process.returncode == 0
        assert machine.held() == 0


def test_ctrl_c_while_a_block_waits_for_its_calls_is_for_them_too(light: None) -> None:
    executor = IsolatedExecutor(1, gpus=0)

    def interrupt() -> None:
        until(lambda: executor._backend.closed)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt), executor:  # noqa: PT012  # the block's end is what is tested
        future = executor.submit(time.sleep, 60)
        thread.start()
    thread.join()

    assert isinstance(future.exception(timeout=240), WorkerDied)
