"""`tfgpu limits` hands over to what runs as root, isolated from whatever the environment names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.command.shell import tfgpu
from tests.machines import machine_of

if TYPE_CHECKING:
    from tfgpu_magic.simgpu import Machine

machine = machine_of("8GiB")


@pytest.mark.parametrize("words", [["--once", "--clear"], ["--always"]])
def test_one_thing_is_done_at_a_time(machine: Machine, words: list[str]) -> None:
    done = tfgpu(machine, "limits", *words)

    assert (done.returncode, done.stdout) == (2, "")
