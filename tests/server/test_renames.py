"""A notebook goes by its present name everywhere, and what it has started and left by its own."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.server.acting import Kernel
from tests.server.streaming import rows, streaming
from tests.sizes import MIB
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.server.conftest import Serve

HOLD = f"from tests.simgpu.on_machine import allocate; allocate({300 * MIB})"
LEFT = f"""
import subprocess
code = "{HOLD}; import time; time.sleep(600)"
subprocess.run(["sh", "-c", f"{sys.executable} -c '{{code}}' >/dev/null 2>&1 & echo $!"], capture_output=True).stdout
"""
OTHERS = """
from pathlib import PurePath
from tfgpu_magic.tell import fetch
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.report_files import ReportFiles
owners = sorted(row.owner.text for row in fetch.table().processes)
with BoardDirectory() as place:
    print(owners, sorted(PurePath(one.notebook).name for one in ReportFiles(place).read() if one.notebook))
"""


def test_a_renamed_notebook_goes_by_its_name_everywhere_and_what_it_left_by_its_own(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    spec = tmp_path / "kernels" / "wrapped" / "kernel.json"
    spec.parent.mkdir(parents=True)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    run = f"{sys.executable} -m ipykernel_launcher -f $0; true"  # as `conda run`, which stays its parent
    argv = ["sh", "-c", run, "{connection_file}"]
    spec.write_text(json.dumps({"argv": argv, "display_name": "Wrapped", "language": "python"}))
    server = serve()
    with (
        Kernel(server, "work/Untitled.ipynb") as renamed,
        Kernel(server, "Untitled1.ipynb", kernel="wrapped") as wrapped,
        Kernel(server, "looks.ipynb") as looks,
    ):
        left = int(eval(renamed.run(LEFT)))
        request.addfinalizer(lambda: os.kill(left, signal.SIGKILL))
        renamed.run(f"%load_ext tfgpu_magic\n{HOLD}")
        for kernel in (wrapped, looks):
            kernel.run(HOLD)
        server.call(f"sessions/{renamed.session}", {"path": "work/train.ipynb"}, method="PATCH")
        server.call(f"sessions/{wrapped.session}", {"path": "eval.ipynb"}, method="PATCH")

        names = ["eval.ipynb", "python, started from Untitled.ipynb", "this notebook", "train.ipynb"]
        until(lambda: looks.run(OTHERS).strip(), lambda told: told == f"{names} ['train.ipynb']")
        with streaming(server) as stream:
            state = stream.until(lambda state: len(rows(state)) == 4 and wrapped.row(state), 10)
        row: Any = wrapped.row(state)
        assert (row["owner"], row["path"], row["pid"], "child" in row) == (
            "eval.ipynb",
            "eval.ipynb",
            wrapped.pid,
            False,
        )
