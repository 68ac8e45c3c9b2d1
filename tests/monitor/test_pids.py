"""What is told of processes by their ids."""

from __future__ import annotations

import os

from tfgpu_magic.monitor.pids import family


def test_the_first_process_of_a_container_is_of_its_own_family() -> None:
    """A notebook's kernel may be that."""
    assert family(1) == {1}
    assert {os.getpid(), os.getppid(), 1} <= family()
