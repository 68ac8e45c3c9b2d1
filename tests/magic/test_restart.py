"""`--restart` on a kernel of a real Jupyter Server: the new kernel has the policy in force."""

from __future__ import annotations

import functools
import json
import time
from pathlib import Path

import psutil
import pytest
from jupyter_client.blocking.client import BlockingKernelClient

from tests.jupyter import Server, configure, execute, reply_to, serving
from tests.machines import machine_of
from tests.sizes import CONTEXT, GIB, MIB
from tests.waiting import until
from tfgpu_magic.notebook import restart
from tfgpu_magic.simgpu import Machine

NO_RESTART = """
from jupyter_server.auth import Authorizer

class NoRestart(Authorizer):
    def is_authorized(self, handler, user, action, resource):
        return not handler.request.path.endswith("/restart")

c.ServerApp.authorizer_class = NoRestart
"""

machine = machine_of("2x8GiB")


@pytest.mark.parametrize("words", ["limit 1GiB", "growth --release"])
def test_restart_applies_the_words_in_the_new_kernel(machine: Machine, server: Server, kernel: str, words: str) -> None:
    client = server.connect(kernel)
    execute(client, "%load_ext tfgpu_magic")
    execute(client, "%tf_gpu visible 1")
    execute(client, "import tensorflow as tf; x = tf.constant(1.0)")
    before = int(execute(client, "import os; print(os.getpid())"))
    assert "since In [" in execute(client, f"%tf_gpu {words}")
    cells = [f"%tf_gpu {words} --restart\nopen('rest', 'w')", "open('queued', 'w')"]
    # As a page asks; the rest and the second must not run in a kernel that is going.
    asked = [client.execute(cell, stop_on_error=True) for cell in cells]
    told = _heard(client)
    replies = [reply_to(client, one)["status"] for one in asked]
    client.stop_channels()
    until(lambda: machine.held(pid=before) == 0)

    client = server.connect(kernel)
    first = execute(client, "%load_ext tfgpu_magic")  # the very first cell finds the words in force
    policy = execute(client, "from tfgpu_magic.engine import engine; print(engine.current().asked)").strip()
    after = int(execute(client, "import os; print(os.getpid())"))
    execute(client, "import tensorflow as tf; x = tf.constant(1.0)")
    sizes = [machine.held(pid=after, gpu=gpu) for gpu in (0, 1)]
    client.stop_channels()

    assert "Restarting this kernel" in told
    assert before != after
    # As `%tf_gpu` says: growth is a variable, and a limit waits for TensorFlow.
    stands = "is in force, also for programs that are started from here"
    stands = stands if words.startswith("growth") else "takes effect when TensorFlow is imported"
    assert first == f"tfgpu_magic: after the restart, `visible 1; {words}` {stands}.\n"
    assert not (server.home / "rest").exists()
    assert not (server.home / "queued").exists()
    assert replies == ["error", "aborted"]  # no page waits for a cell of a kernel that is gone
    assert policy == f"visible 1; {words}"  # what was asked before still counts
    assert sizes[0] == 0
    assert sizes[1] == GIB + CONTEXT if words == "limit 1GiB" else sizes[1] < CONTEXT + 64 * MIB


def test_a_server_without_authentication_restarts_it_too_and_what_was_dropped_before_stays_dropped(
    tmp_path: Path,
) -> None:
    configure(tmp_path, policy="visible 0")
    with Machine.create("2x8GiB") as machine, serving(machine, tmp_path, token="") as server:
        page = {"Cookie": "_xsrf=page", "X-XSRFToken": "page"}
        with server.open("api/kernels", {"name": "python3"}, headers=page) as answer:
            kernel = json.load(answer)["id"]
        client = server.connect(kernel)
        said = execute(client, "import tensorflow as tf; x = tf.constant(1.0); import os; print(os.getpid())")
        before = int(said.split()[-1])
        client.execute("%tf_gpu default; limit 0=2GiB --restart")
        _heard(client)
        client.stop_channels()
        until(lambda: machine.held(pid=before) == 0)
        client = server.connect(kernel)
        first = execute(client, "pass")
        status = execute(client, "%tf_gpu")
        policy = execute(client, "from tfgpu_magic.engine import engine; print(engine.current().asked)").strip()
        client.stop_channels()

    assert "after the restart, `limit 0=2GiB` takes effect when TensorFlow is imported" in first
    assert policy == "limit 0=2GiB"
    # One truth: what waits is not said to be in force.
    assert "In force" not in status
    assert "takes effect when" in status


def test_where_the_first_cell_sets_the_same_policy_its_line_alone_answers(server: Server, kernel: str) -> None:
    client = server.connect(kernel)
    execute(client, "%load_ext tfgpu_magic\nimport tensorflow as tf; x = tf.constant(1.0); import os")
    before = int(execute(client, "print(os.getpid())"))
    client.execute("%tf_gpu visible 1; limit 1GiB --restart")
    _heard(client)
    client.stop_channels()
    until(lambda: not psutil.pid_exists(before))

    client = server.connect(kernel)
    first = execute(client, "%load_ext tfgpu_magic\n%tf_gpu visible 1; limit 1GiB")
    client.stop_channels()

    assert first.startswith("`visible 1; limit 1GiB` takes effect when TensorFlow is imported.")
    assert "after the restart" not in first
    assert "already loaded" not in first


def test_a_restart_that_is_interrupted_at_once_does_not_happen(server: Server, kernel: str) -> None:
    client = server.connect(kernel)
    execute(client, "%load_ext tfgpu_magic\nimport tensorflow as tf; x = tf.constant(1.0)\nimport os, psutil")
    execute(client, "import tfgpu_magic.notebook.restart; tfgpu_magic.notebook.restart.LAST_WORDS = 60.0")
    before = execute(client, "print(os.getpid())")
    client.execute("%tf_gpu growth --restart")
    _heard(client)
    server.open(f"api/kernels/{kernel}/interrupt", {}).close()
    assert "KeyboardInterrupt" in _heard(client)
    helpers = execute(client, "print([child.cmdline() for child in psutil.Process().children()])")
    after = execute(client, "print(os.getpid())")
    client.stop_channels()

    assert before == after
    assert "tfgpu_magic.notebook.server_client" not in helpers


def test_a_restart_that_the_server_refuses_is_said_and_cells_run_again(tmp_path: Path) -> None:
    (tmp_path / ".jupyter").mkdir()
    (tmp_path / ".jupyter" / "jupyter_server_config.py").write_text(NO_RESTART)
    with Machine.create("1x8GiB") as machine, serving(machine, tmp_path) as server:
        client = server.connect(server.call("kernels", {"name": "python3"})["id"])
        execute(client, "%load_ext tfgpu_magic\nimport tensorflow as tf; x = tf.constant(1.0); import os")
        before = execute(client, "print(os.getpid())")
        client.execute("%tf_gpu growth --restart")
        assert "Restarting" in _heard(client)
        told = _heard(client)
        after = until(lambda: execute(client, "print(os.getpid())"))
        client.stop_channels()

    assert "did not restart this kernel. Restart the kernel from its menu" in told
    assert before == after


COLAB = "import sys, types; sys.modules['google.colab'] = types.ModuleType('google.colab')"
"""What makes a kernel look like Colab's, which has no server that could be asked, and is started anew when it ends."""


def test_where_a_kernel_is_started_anew_when_it_ends_the_words_are_in_force_once_the_extension_is_loaded(
    machine: Machine, server: Server, kernel: str
) -> None:
    client = server.connect(kernel)
    execute(client, f"{COLAB}\n%load_ext tfgpu_magic\n%tf_gpu visible 1")
    before = int(execute(client, "import os, tensorflow as tf; x = tf.constant(1.0); print(os.getpid())"))
    asked = client.execute("%tf_gpu limit 1GiB --restart\nopen('colab-rest', 'w')")
    told, reply = _heard(client), reply_to(client, asked)["status"]
    client.stop_channels()
    until(lambda: machine.held(pid=before) == 0)

    client = until(lambda: server.connect(kernel), despite=RuntimeError)
    loaded = execute(client, f"{COLAB}\n%load_ext tfgpu_magic")
    again = execute(client, "%reload_ext tfgpu_magic")
    execute(client, "import tensorflow as tf; x = tf.constant(1.0)")
    after = int(execute(client, "import os; print(os.getpid())"))
    sizes = [machine.held(pid=after, gpu=gpu) for gpu in (0, 1)]
    client.stop_channels()

    assert "`visible 1; limit 1GiB` is in force there when `%load_ext tfgpu_magic` has been run again" in told
    assert reply == "error"
    assert not (server.home / "colab-rest").exists()
    assert before != after
    assert (
        loaded == "tfgpu_magic: after the restart, `visible 1; limit 1GiB` takes effect when TensorFlow is imported.\n"
    )
    assert again == ""
    assert sizes == [0, GIB + CONTEXT]


def test_the_words_of_a_restart_are_used_once_and_soon_and_by_the_same_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = Path("kernel-1.json"), Path("kernel-2.json")
    restart.keep("growth", "limit 2GiB", mine)
    assert restart.take(other) is None
    assert restart.take(mine) is None  # this is the process that has kept them
    for seconds, found in [(60, ("growth", "limit 2GiB")), (3600, None), (-60, None)]:
        restart.keep("growth", "limit 2GiB", mine)
        with monkeypatch.context() as later:
            later.setattr("tfgpu_magic.notebook.restart.os.getpid", lambda: 1)
            now = time.time()
            later.setattr("tfgpu_magic.notebook.restart.time.time", functools.partial(sum, (now, seconds)))
            assert restart.take(mine) == found
            assert restart.take(mine) is None


def _heard(client: BlockingKernelClient) -> str:
    """Return what the restarting cell prints before its kernel is killed."""
    while True:
        message = client.get_iopub_msg(timeout=240)
        if message["msg_type"] in ("stream", "error"):
            return str(message["content"].get("text") or message["content"])
