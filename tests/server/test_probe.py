"""`tfgpu probe` beside a real server: a running cell is activity, and without a server nothing is told."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from tests.server.acting import Kernel
from tests.waiting import until

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from tests.jupyter import Server
    from tfgpu_magic.simgpu import Machine


def test_kubeflow_is_told_of_a_running_cell_and_of_nothing_where_there_is_no_server(
    machine: Machine, server: Server, tmp_path: Path
) -> None:
    def probe(runtime: Path) -> subprocess.CompletedProcess[str]:
        own = {"TFGPU_MAGIC_DIR": str(tmp_path / "board"), "OUTPUT_JSON_PATH": str(tmp_path / "told")}
        command = [sys.executable, "-m", "tfgpu_magic", "probe"]
        environment = {**own, "JUPYTER_RUNTIME_DIR": str(runtime)}
        return machine.run(command, env=environment, capture_output=True, text=True)

    kernel = Kernel(server, "train.ipynb")
    kernel.client.execute("import time; time.sleep(3600)")
    until(lambda: server.call(f"kernels/{kernel.kernel}")["execution_state"] == "busy")
    done = probe(server.runtime)

    assert (done.returncode, json.loads(done.stdout)) == (0, {"has_activity": True}), done.stderr
    assert json.loads((tmp_path / "told").read_text()) == {"has_activity": True}
    done = probe(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no Jupyter server of this user" in done.stderr
    kernel.end()
