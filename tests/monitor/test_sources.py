"""A source of processes is a file and a line: a made-up one is in every view, and only NVIDIA's own files name it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tfgpu_magic
from tests.monitor.boards import snapshot
from tests.sizes import GIB
from tfgpu_magic.model.snapshot import Snapshot
from tfgpu_magic.monitor.driver.readers import joined

if TYPE_CHECKING:
    from tfgpu_magic.simgpu import Machine

HOUSE = Path(tfgpu_magic.__file__).parent

FILE = """
import os, time
from tfgpu_magic.model.snapshot import Gpu, Process, Snapshot

class Reader:
    def __init__(self, folders):
        pass

    def read(self, *, processes=True, graphics=True):
        now = time.time()
        figures = dict(total=16 * 2**30, used=3 * 2**30, free=13 * 2**30, listed=processes)
        gpu = Gpu(index=0, uuid="GPU-acme", name="Acme Rocket", **figures)
        rows = (Process(gpu="0", pid=int(os.environ["TFGPU_ACME"]), kind="C", held=3 * 2**30),) if processes else ()
        return Snapshot(time=now, driver="1.0", gpus=(gpu,), processes=rows, listed_at=now if processes else None)

    def close(self):
        pass
"""
END = '\n)\n"""Every source'
LINE = '\n    Source("AcmeML", "Acme", "tfgpu_magic.monitor.driver.acme:Reader", check="acme-smi"),'
VIEWS = """
import json, sys, time
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from tfgpu_magic.monitor.live import Live
from tfgpu_magic.monitor.driver.look import look
from tfgpu_magic.monitor.table.fetch import Watcher
from tfgpu_magic.monitor.table import message

seen = look(30)
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "tfgpu_magic")
with capture_output() as heard:
    shell.run_cell("%tf_gpu")
text = heard.stdout + "".join(output.data.get("text/plain", "") for output in heard.outputs)
watcher = Watcher(Live(linger=1))
end = time.monotonic() + 60
while not (board := watcher.live.wait(30).snapshot).listed_at and time.monotonic() < end:
    time.sleep(0.1)
state = message.state(watcher.see())
print(json.dumps([seen.to_json(), board.to_json(), text, state]))
"""


def views(folder: Path) -> tuple[Snapshot, Snapshot, str, dict[str, Any]]:
    """Return the look, the board, the text of `%tf_gpu` and the message, where the package has this source too."""
    house = folder / "site" / "tfgpu_magic"
    shutil.copytree(HOUSE, house, ignore=shutil.ignore_patterns("static", "labextension", "__pycache__", "src"))
    (house / "monitor" / "driver" / "acme.py").write_text(FILE)
    table = house / "monitor" / "driver" / "sources.py"
    before, end, after = table.read_text().partition(END)
    assert end
    table.write_text(before + LINE + end + after)
    mine = {"PYTHONPATH": str(house.parent), "TFGPU_MAGIC_DIR": str(folder / "board"), "TFGPU_ACME": str(os.getpid())}
    command = [sys.executable, "-W", "ignore", "-c", VIEWS]
    env = os.environ | mine
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=True)
    look, board, said, state = json.loads(done.stdout.splitlines()[-1])
    return Snapshot.from_json(look), Snapshot.from_json(board), said, state


def test_a_source_of_one_file_and_one_line_is_in_every_view_and_its_gpus_are_numbered_on(
    machine: Machine, tmp_path: Path
) -> None:
    machine.add_neighbour("2GiB@3")

    look, board, text, state = views(tmp_path)

    for seen in (look, board):
        assert seen.error is None
        assert [(gpu.index, gpu.name) for gpu in seen.gpus][-1] == (4, "Acme Rocket")
        assert [(row.gpu, row.held) for row in seen.processes] == [("3", 2 * GIB), ("4", 3 * GIB)]
        assert seen.processes[-1].pid == os.getpid()
    assert re.search(r"Rocket .* 3\.0 / 16 GiB", text)
    assert re.search(rf"{os.getpid()} +C +python.* 3\.0 GiB", text)
    assert "Acme" not in text
    (row,) = [row for row in state["rows"].values() if row.get("pid") == os.getpid()]
    assert (row["held"], row["who"], state["gpus"][row["gpu"]]["name"]) == (3 * GIB, "mine", "Rocket")
    assert list(state["gpus"]) == ["0", "1", "2", "3", "4"]


def test_a_source_that_is_not_here_is_left_out_and_one_that_fails_is_a_note() -> None:
    good, absent = snapshot(), Snapshot(time=1.0, error="There is none.", absent=True)
    fails = Snapshot(time=1.0, error="It hangs.")

    assert joined([absent, good]) == joined([good]) == good
    assert joined([absent]) == absent
    assert joined([absent, fails]) == fails
    assert joined([absent, absent._replace(error="Nor one.")]).error == "There is none. Nor one."
    assert joined([fails, good]) == good._replace(notes=(*good.notes, "It hangs."))


def test_only_its_own_files_name_a_maker() -> None:
    rooms = ("model", "monitor", "insight", "server")
    paths = [path for room in rooms for path in sorted((HOUSE / room).rglob("*.py"))]
    naming = [path.name for path in paths if re.search("nvidia|nvml|0x10de", path.read_text(), re.IGNORECASE)]

    assert naming == ["limits.py", "nvml.py", "nvml_calls.py", "sources.py"]
