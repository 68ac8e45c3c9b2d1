"""What is kept of a process that holds memory: when it began, and what it is called; of other users' only the first."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.monitor.test_owners import NOBODY, SECRET, driver, needs_root, start
from tfgpu_magic.monitor import holders
from tfgpu_magic.monitor.holders import about
from tfgpu_magic.monitor.pids import began
from tfgpu_magic.monitor.unused import Holder

if TYPE_CHECKING:
    from tests.monitor.test_owners import Start

__all__ = ["driver", "start"]  # the fixtures


def test_a_kernel_goes_by_its_notebooks_path(start: Start) -> None:
    pid = start(JPY_SESSION_NAME="/home/me/work/eval.ipynb")

    assert about(pid) == Holder(began(pid) or 0, "/home/me/work/eval.ipynb")


def test_a_program_goes_by_its_script_and_no_other_argument(start: Start) -> None:
    pid = start()

    assert about(pid) == Holder(began(pid) or 0, "python train.py")


@needs_root
def test_of_another_users_process_nothing_else_is_read(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = start("/bin/sh", "-c", "echo; read line", SECRET, user=NOBODY, JPY_SESSION_NAME="secret.ipynb")

    def read(_: object) -> None:
        raise AssertionError("read what is nobody else's business")

    monkeypatch.setattr(holders, "_name", read)
    monkeypatch.setattr(holders, "opens_driver", read)

    assert about(pid) == Holder(began(pid) or 0, "")


def test_what_has_ended_or_has_no_driver_open_is_not_what_the_driver_means(start: Start) -> None:
    without, ended = start(drives=False), start()
    psutil.Process(ended).kill()
    os.waitpid(ended, 0)

    assert (about(without), about(ended)) == (None, None)
