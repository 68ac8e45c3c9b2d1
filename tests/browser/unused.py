"""A past in which notebooks have held memory without use, as a collector has recorded it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.browser.scene import Scene
from tests.machine.boards import end_collectors
from tests.server.acting import leave_unused

if TYPE_CHECKING:
    from tests.jupyter import Notebook

LONG_AGO = 2 * 3600 + 100


def unused(scene: Scene, *notebooks: Notebook) -> None:
    """Leave two hours in which notebooks, which hold memory now, have not used it."""
    gpus = range(len(scene.machine.gpus()))
    rows = [(gpu, one.pid) for gpu in gpus for one in notebooks if scene.held(one, gpu)]
    leave_unused(scene.machine, scene.server, rows, LONG_AGO)
    end_collectors(scene.machine)  # a page that is open may have started one, which has not read this
