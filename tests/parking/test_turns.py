"""Notebooks that together hold more than a GPU has take turns on it; the long show is `scripts/_turns`."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts._turns import take_turns
from tests.jupyter import serving
from tests.parking.notebooks import Site, home
from tfgpu_magic.simgpu import Machine


def test_three_notebooks_take_turns_on_a_gpu_that_has_room_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Machine.create("1x8GiB") as machine:
        monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
        for name, value in machine.environ().items():
            monkeypatch.setenv(name, value)
        with serving(machine, home(tmp_path / "home")) as server:
            turns = take_turns(Site(machine, server), notebooks=3, seconds=25)

    assert turns.failed == []
    assert turns.cells >= 3
    assert sum(turns.returns) >= 4  # each came back for its line, too
