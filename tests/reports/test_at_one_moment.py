"""Two notebooks that ask for memory at the same moment, or one after the other at once: the second is warned."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.frameworks.cells_on_machine import in_a_process
from tests.machines import machine_of
from tests.processes import PATIENCE
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

machine = machine_of("1x16GiB")

POINTS = {"deciding": ("engine.other_processes", "_beside"), "applying": ("engine.enforcement", "enforce")}
"""Where a notebook is held: it has read what others claim, and has not decided; or it has, and has not applied it."""
WAITING = "claims.ledger", "_lock_byte"
"""Where the other one is, for a moment: it has read the GPUs, and goes for the ledger's lock."""
HOLD = """
import importlib, pathlib
from tests.waiting import until
from tfgpu_magic.claims import ledger
ledger.LOCK_TIMEOUT = {patience}  # a busy machine may hold the one that decides for longer than three seconds
module, folder = importlib.import_module("tfgpu_magic.{module}"), pathlib.Path({folder!r})
function = module.{name}
def held(*args):
    module.{name} = function
    folder.joinpath("held").touch()
    until(folder.joinpath("go").exists, seconds={patience})
    return function(*args)
module.{name} = held
"""
"""Has the next call of a function wait."""
STAYS = f"until(folder.joinpath('over').exists, seconds={PATIENCE})"
LINES = [
    "%tf_gpu limit 60%",
    "%tf_gpu limit 60% --grow",
    "%tf_gpu split 5GiB 5GiB",
    "%tf_gpu pick 1; limit 60%",
    "%gpu limit 60%",
]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("point", POINTS)
def test_the_second_of_two_notebooks_is_warned_whenever_it_asks(
    machine: Machine, tmp_path: Path, line: str, point: str
) -> None:
    def notebook(folder: Path, at: tuple[str, str], *then: str) -> str:
        """Play a notebook that is held at a point, and return what is read under its line."""
        module, name = at
        folder.mkdir()
        hold = HOLD.format(module=module, name=name, folder=str(folder), patience=PATIENCE)
        env = {"TFGPU_MAGIC_DIR": str(tmp_path / "board")}
        return in_a_process(machine)(env, ["%load_ext tfgpu_magic", hold, line, *then])[2]

    first, second = tmp_path / "1", tmp_path / "2"
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(notebook, first, POINTS[point], STAYS)
        until((first / "held").exists, seconds=PATIENCE)
        late = pool.submit(notebook, second, WAITING)
        until((second / "held").exists, seconds=PATIENCE)
        (second / "go").touch()
        if point == "applying":
            late.result()
        (first / "go").touch()
        said = late.result()
        (first / "over").touch()

    assert "promised" not in asked.result()
    assert "Not applied" not in said
    assert "promised: " in said
