"""A past in which notebooks have held memory without use, as a collector has recorded it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING
from unittest import mock

from tests.browser.scene import Scene
from tests.monitor.boards import end_collectors, published
from tfgpu_magic.monitor.board.directory import BoardDirectory

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
    rows = [
        (number, one.pid)
        for number, _ in enumerate(scene.machine.gpus())
        for one in notebooks
        if scene.held(one, number)
    ]
    with (
        mock.patch.dict(os.environ, TFGPU_SIMGPU=str(scene.machine.path)),
        BoardDirectory(scene.server.home / "board") as place,
    ):
        published(place, scene.machine, rows, since=time.time() - LONG_AGO)
    end_collectors(scene.machine)  # a page that is open may have started one, which has not read this
