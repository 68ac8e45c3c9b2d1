"""`--restart` on a kernel of a real Jupyter Server: the new kernel has the policy in force."""

from __future__ import annotations

from pathlib import Path

import pytest
from jupyter_client.blocking.client import BlockingKernelClient

from tests.jupyter import execute, serving, until
from tfgpu_magic.simgpu import Machine

MIB, GIB = 2**20, 2**30
CONTEXT = 256 * MIB


@pytest.mark.parametrize("words", ["limit 1GiB", "growth"])
def test_restart_applies_the_words_in_the_new_kernel(tmp_path: Path, words: str) -> None:
    with Machine.create("2x8GiB") as machine, serving(machine, tmp_path) as server:
        kernel = server.call("kernels", {"name": "python3"})["id"]
        client = server.connect(kernel)
        execute(client, "%load_ext tfgpu_magic")
        execute(client, "%tf_gpu visible 1")
        execute(client, "import tensorflow as tf; x = tf.constant(1.0)")
        before = int(execute(client, "import os; print(os.getpid())"))
        assert "since In [" in execute(client, f"%tf_gpu {words}")
        client.execute(f"%tf_gpu {words} --restart")
        client.execute("open('queued', 'w')")  # must not run in a kernel that is going
        told = _heard(client)
        client.stop_channels()
        until(lambda: machine.held(pid=before) == 0)

        client = server.connect(kernel)
        first = execute(client, "pass")  # the very first cell finds the words in force
        policy = execute(client, "from tfgpu_magic import control; print(control.current().asked)").strip()
        after = int(execute(client, "import os; print(os.getpid())"))
        execute(client, "import tensorflow as tf; x = tf.constant(1.0)")
        sizes = [machine.held(pid=after, gpu=gpu) for gpu in (0, 1)]
        client.stop_channels()

    assert "Restarting this kernel" in told
    assert before != after
    assert first == f"tfgpu_magic: `visible 1; {words}`, from the restart, is in force.\n"
    assert not (tmp_path / "queued").exists()
    assert policy == f"visible 1; {words}"  # what was asked before still counts
    assert sizes[0] == 0
    assert sizes[1] == GIB + CONTEXT if words == "limit 1GiB" else sizes[1] < CONTEXT + 64 * MIB


def test_a_restart_that_is_interrupted_at_once_does_not_happen(tmp_path: Path) -> None:
    with Machine.create("1x8GiB") as machine, serving(machine, tmp_path) as server:
        kernel = server.call("kernels", {"name": "python3"})["id"]
        client = server.connect(kernel)
        execute(client, "%load_ext tfgpu_magic\nimport tensorflow as tf; x = tf.constant(1.0)\nimport os, psutil")
        execute(client, "import tfgpu_magic.restart; tfgpu_magic.restart.LAST_WORDS = 60.0")
        before = execute(client, "print(os.getpid())")
        client.execute("%tf_gpu growth --restart")
        _heard(client)
        server.open(f"api/kernels/{kernel}/interrupt", {}).close()
        assert "KeyboardInterrupt" in _heard(client)
        helpers = execute(client, "print([child.cmdline() for child in psutil.Process().children()])")
        after = execute(client, "print(os.getpid())")
        client.stop_channels()

    assert before == after
    assert "tfgpu_magic.restart" not in helpers


@pytest.mark.parametrize("policy", ["limti 4GiB", "limit 12GiB"])
def test_a_refused_policy_of_the_administrator_is_told_in_the_first_cell(tmp_path: Path, policy: str) -> None:
    profile = tmp_path / ".ipython" / "profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_config.py").write_text(
        f"c = get_config()\nc.InteractiveShellApp.extensions = ['tfgpu_magic']\nc.TfGpuMagics.policy = {policy!r}\n"
    )
    with Machine.create("1x8GiB") as machine, serving(machine, tmp_path) as server:
        client = server.connect(server.call("kernels", {"name": "python3"})["id"])
        told, again = execute(client, "pass"), execute(client, "pass")
        client.stop_channels()

    assert f"`{policy}`, from the configuration, is NOT in force." in told
    assert again == ""


def _heard(client: BlockingKernelClient) -> str:
    """What the restarting cell prints before its kernel is killed."""
    while True:
        message = client.get_iopub_msg(timeout=60)
        if message["msg_type"] in ("stream", "error"):
            return str(message["content"].get("text") or message["content"])
