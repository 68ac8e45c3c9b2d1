"""`tfgpu limits` hands over to what runs as root, isolated from whatever the environment names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.command.shell import tfgpu
from tests.machines import machine_of

if TYPE_CHECKING:
    from pathlib import Path

    from tfgpu_magic.simgpu import Machine

machine = machine_of("8GiB")


def test_a_planted_module_is_not_run(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("print('planted')")
    (tmp_path / "tomllib.py").write_text("print('planted')")

    done = tfgpu(machine, "limits", "--show", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})

    assert done.stdout.startswith(("No limit is set", "Nothing was done"))
    assert "planted" not in done.stdout


@pytest.mark.parametrize("words", [["--once", "--clear"], ["--always"]])
def test_one_thing_is_done_at_a_time(machine: Machine, words: list[str]) -> None:
    done = tfgpu(machine, "limits", *words)

    assert (done.returncode, done.stdout) == (2, "")
