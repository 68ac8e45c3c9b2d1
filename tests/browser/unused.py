"""A past in which notebooks have held memory without use, as a collector has recorded it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING
from unittest import mock

from tests.browser.scene import Scene
from tests.monitor.boards import end_collectors
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.monitor.board.unused import UnusedLine, UnusedRecord, keep
from tfgpu_magic.monitor.owners.pids import began

if TYPE_CHECKING:
    from tests.jupyter import Notebook

LONG_AGO = 2 * 3600 + 100


def unused(scene: Scene, *notebooks: Notebook) -> None:
    """Leave the record of a collector that has seen two hours of each notebook without use, and then was killed.

    Args:
        scene: where they are.
        notebooks: they hold memory now.
    """
    end_collectors(scene.machine)
    now = time.time()
    lines = {
        gpu.uuid: {
            one.pid: UnusedLine(began(one.pid) or 0, now - LONG_AGO, True)
            for one in notebooks
            if scene.held(one, number)
        }
        for number, gpu in enumerate(scene.machine.gpus())
    }
    with (
        mock.patch.dict(os.environ, TFGPU_SIMGPU=str(scene.machine.path)),
        BoardDirectory(scene.server.home / "board") as place,
    ):
        keep(place, UnusedRecord(now, lines))
    end_collectors(scene.machine)  # a page that is open may have started one, which has not read this
