"""An administrator's policy in the kernels of a real Jupyter Server, which has it by configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jupyter import configure, execute, serving
from tests.waiting import until
from tfgpu_magic.simgpu import Machine


def test_kernels_opened_before_any_tensorflow_pick_a_gpu_each(tmp_path: Path) -> None:
    with Machine.create("4x8GiB") as machine, _configured(machine, tmp_path, "pick; growth") as server:
        clients = [server.connect(server.call("kernels", {"name": "python3"})["id"]) for _ in range(4)]
        pids = [int(execute(client, "import os; print(os.getpid())")) for client in clients]
        for client in clients:  # all at once
            client.execute("import tensorflow as tf; x = tf.constant(1.0)")
        until(lambda: all(machine.held(pid=pid) for pid in pids), seconds=120)
        sizes = [[machine.held(pid=pid, gpu=gpu) > 0 for gpu in range(4)] for pid in pids]
        for client in clients:
            client.stop_channels()

    assert sorted(sizes) == [[n == gpu for n in range(4)] for gpu in (3, 2, 1, 0)]


@pytest.mark.parametrize("policy", ["limti 4GiB", "growth"])
def test_only_what_cannot_be_had_is_told_in_the_first_cell_and_in_the_servers_log(tmp_path: Path, policy: str) -> None:
    with Machine.create("1x8GiB") as machine, _configured(machine, tmp_path, policy) as server:
        client = server.connect(server.call("kernels", {"name": "python3"})["id"])
        told, again = execute(client, "pass"), execute(client, "pass")
        client.stop_channels()
        log = server.log.read_text()

    wrong = f"`{policy}`, from the configuration, is NOT in force" if policy != "growth" else ""
    assert wrong in told
    assert wrong in log
    assert bool(told) == bool(wrong)
    assert again == ""


def _configured(machine: Machine, home: Path, policy: str):  # type: ignore[no-untyped-def]  # a context of a Server
    """Run a Jupyter Server whose kernels have the extension and a policy by configuration."""
    configure(home, policy=policy)
    return serving(machine, home)
