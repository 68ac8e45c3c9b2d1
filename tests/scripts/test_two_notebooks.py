"""README's first case, as it says it: a second notebook finds the GPU full, and both have room after three steps."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from jupyter_client.manager import KernelManager, start_new_kernel

from tests.jupyter import Notebook, Server, execute, serving
from tests.sizes import CONTEXT, MIB
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

README = (Path(__file__).parents[2] / "README.md").read_text()
TRAIN = "import tensorflow as tf; float(tf.reduce_sum(tf.zeros([4, 1024, 1024, 256])))"  # 4 GiB


Cell = Callable[[str], str]


def steps() -> list[str]:
    """Return the cells of the three steps."""
    case = README.partition("## Your second notebook")[2].partition("## ")[0]
    return [
        "\n".join(map(str.strip, cell.splitlines())) for cell in re.findall(r" {3}```\n(.*?) {3}```", case, re.DOTALL)
    ]


def followed(server: Server, holds: Callable[[int], object]) -> tuple[str, str, str, str]:
    """Have notebooks of a server follow the case.

    Args:
        server: where they are.
        holds: tells of a kernel's pid whether it holds GPU memory.

    Returns:
        What the second notebook fails with, sees, and the first is told as it restarts; and what a third is told.
    """
    see, free, keep = steps()
    first, second = (Notebook(server, f"{name}.ipynb") for name in ("first", "second"))
    first.run(TRAIN)
    failed = second.run(TRAIN)
    seen = second.run(see)
    restarting = first.run(free)
    until(lambda: not holds(first.pid))
    server.call(f"kernels/{second.kernel}/restart", {})  # from its menu: after the error TensorFlow cannot go on
    for notebook in (first, second):
        client = server.connect(notebook.kernel)
        execute(client, keep)
        assert execute(client, TRAIN).endswith("0.0")
        client.stop_channels()
    return failed, seen, restarting, Notebook(server, "third.ipynb").run(keep)


def test_two_notebooks_have_room_after_the_three_steps_and_a_third_is_refused(tmp_path: Path) -> None:
    with Machine.create("1x16GiB") as machine, serving(machine, tmp_path) as server:
        failed, seen, restarting, third = followed(server, lambda pid: machine.held(pid=pid))
        held = [process.held for process in machine.processes()]

    assert "OOM when allocating tensor" in failed
    assert re.search(r"first\.ipynb +1[45]\.\d GiB", seen)
    assert "Restarting this kernel" in restarting
    assert sorted(held)[-2:] == [16 * 1024 * 40 // 100 * MIB + CONTEXT] * 2
    assert "Not applied. GPU 0: 40% is 6.4 GiB" in third
    assert "Fits now:\n  %tf_gpu pick; limit 1.7GiB" in third


def test_the_steps_end_with_two_running_notebooks_where_no_server_is(tmp_path: Path) -> None:
    """As in VS Code: its kernels are jupyter_client's, and are restarted from the menu."""
    see, free, keep = steps()
    with Machine.create("1x16GiB") as machine, ExitStack() as kernels:

        def kernel() -> tuple[KernelManager, Cell]:
            manager, client = start_new_kernel(env=machine.environ() | {"IPYTHONDIR": str(tmp_path)})
            kernels.callback(manager.shutdown_kernel, now=True)
            kernels.callback(client.stop_channels)
            return manager, partial(execute, client)

        def restart(manager: KernelManager) -> Cell:
            """Restart it as the menu does."""
            manager.restart_kernel(now=True)
            client = manager.blocking_client()
            client.start_channels()
            kernels.callback(client.stop_channels)
            client.wait_for_ready(timeout=60 * SLACK)
            return partial(execute, client)

        (one, first), (two, second) = kernel(), kernel()
        first(TRAIN)
        failed = second(TRAIN)
        seen = second(see)
        told = first(free)
        for run in map(restart, (one, two)):
            run(keep)
            assert run(TRAIN).endswith("0.0")
        third = kernel()[1](keep)
        held = [process.held for process in machine.processes()]

    assert "OOM when allocating tensor" in failed
    assert re.search(r"python -m ipykernel_launcher +1[45]\.\d GiB", seen)  # it has not loaded the extension
    assert "Restart the kernel from its menu" in told
    assert sorted(held)[-2:] == [16 * 1024 * 40 // 100 * MIB + CONTEXT] * 2
    assert "Fits now:\n  %tf_gpu pick; limit 1.7GiB" in third
