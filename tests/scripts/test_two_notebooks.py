"""README's first case, as it says it: a second notebook finds the GPU full, and both have room after three steps."""

from __future__ import annotations

import re
from pathlib import Path

from tests.jupyter import Notebook, execute, serving
from tests.sizes import CONTEXT, MIB
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

README = (Path(__file__).parents[2] / "README.md").read_text()
TRAIN = "import tensorflow as tf; float(tf.reduce_sum(tf.zeros([4, 1024, 1024, 256])))"  # 4 GiB


def _steps() -> list[str]:
    """Return the cells of the three steps."""
    case = README.partition("## Your second notebook")[2].partition("## ")[0]
    return [
        "\n".join(map(str.strip, cell.splitlines())) for cell in re.findall(r" {3}```\n(.*?) {3}```", case, re.DOTALL)
    ]


def test_two_notebooks_have_room_after_the_three_steps_and_a_third_is_refused(tmp_path: Path) -> None:
    see, free, keep = _steps()
    with Machine.create("1x16GiB") as machine, serving(machine, tmp_path) as server:
        first, second = (Notebook(server, f"{name}.ipynb") for name in ("first", "second"))
        first.run(TRAIN)
        failed = second.run(TRAIN)
        seen = second.run(see)
        restarting = first.run(free)
        until(lambda: machine.held(pid=first.pid) == 0)
        server.call(f"kernels/{second.kernel}/restart", {})  # from its menu: after the error TensorFlow cannot go on
        for notebook in (first, second):
            client = server.connect(notebook.kernel)
            execute(client, keep)
            assert execute(client, TRAIN).endswith("0.0")
            client.stop_channels()
        third = Notebook(server, "third.ipynb").run(keep)
        held = [process.held for process in machine.processes()]

    assert "OOM when allocating tensor" in failed
    assert re.search(r"first\.ipynb +1[45]\.\d GiB", seen)
    assert "Restarting this kernel" in restarting
    assert sorted(held)[-2:] == [16 * 1024 * 40 // 100 * MIB + CONTEXT] * 2
    assert "Not applied. GPU 0: 40% is 6.4 GiB" in third
    assert "Fits now:\n  %tf_gpu pick; limit 1.7GiB" in third
