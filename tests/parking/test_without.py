"""Where parking is not installed, all else works: with its folder taken out of a copy of the package."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tfgpu_magic
from tests.jupyter import Notebook, Server, serving
from tests.machines import machine_of
from tests.server.conftest import ENABLED
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

machine = machine_of("2x8GiB")

SESSION = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in {cells!r}:
    print(">>>")
    shell.run_cell(cell)
"""
COMPLETIONS = """
from IPython.core.completer import provisionalcompleter
with provisionalcompleter():
    print([one.text for one in get_ipython().Completer.completions("%tf_gpu ", 8)])
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that has the package without parking."""
    place = tmp_path_factory.mktemp("bare")
    house = Path(tfgpu_magic.__file__).parent
    shutil.copytree(house, place / "tfgpu_magic", ignore=shutil.ignore_patterns("parking", "__pycache__"))
    return place


def said(machine: Machine, bare: Path, *command: str) -> str:
    """Run Python there, and return all that it says."""
    env = {"PYTHONPATH": str(bare), "TFGPU_MAGIC_DIR": str(bare / "board")}
    done = machine.run([sys.executable, *command], env=env, stdout=-1, stderr=subprocess.STDOUT, text=True, cwd=bare)
    return str(done.stdout)


def test_a_session_works_and_park_says_that_it_is_not_installed(machine: Machine, bare: Path) -> None:
    cells = [
        "%load_ext tfgpu_magic", "import tfgpu_magic; print(tfgpu_magic.__file__)", "%tf_gpu", "%tf_gpu limit 2GiB",
        "%tf_gpu limit 100GiB", "%tf_gpu park", "%config TfGpuMagics.parking = 'auto 10m'", COMPLETIONS,
        "%unload_ext tfgpu_magic",
    ]  # fmt: skip
    shown = said(machine, bare, "-c", SESSION.format(cells=cells)).split(">>>\n")
    _, loaded, where, table, limit, refused, park, setting, words, unloaded = shown

    assert str(bare) in where
    assert "8 GiB" in table
    assert "2 GiB" in limit
    assert "UsageError: Not applied." in refused
    assert "UsageError: Parking is not installed here." in park
    assert "`parking`, from `%config`, is no setting any more." in setting
    assert "'limit'" in words
    assert "park" not in words
    assert loaded + unloaded == ""


def test_the_command_and_the_doctor_work(machine: Machine, bare: Path) -> None:
    assert "8 GiB" in said(machine, bare, "-m", "tfgpu_magic", "status")
    report = json.loads(said(machine, bare, "-m", "tfgpu_magic", "doctor", "--quick", "--json"))

    assert not [one for one in report["findings"] if one["name"].startswith("doctor.broken")]


@pytest.fixture
def server(machine: Machine, bare: Path, tmp_path: Path) -> Iterator[Server]:
    environment = {"TFGPU_MAGIC_DIR": str(tmp_path / "board"), "PYTHONPATH": str(bare)}
    with serving(machine, tmp_path, options=[ENABLED], environment=environment) as server:
        yield server


def test_the_server_shows_a_notebook(server: Server) -> None:
    notebook = Notebook(server, "train.ipynb")
    assert "parking" not in notebook.run("%load_ext tfgpu_magic\n%tf_gpu limit 2GiB")

    def page() -> str:
        with server.open("tfgpu-magic/snapshot") as answer:
            return str(answer.read().decode())

    until(page, lambda text: '"8 GiB"' in text or "8589934592" in text)
    with pytest.raises(OSError, match="404"):
        server.open("tfgpu-magic/park", {"pid": notebook.pid})
    assert "Traceback" not in server.log.read_text()
