"""A real IPython as `tests.magic.shell` has it, and looks at the driver that take as long as this machine needs."""

from __future__ import annotations

from unittest import mock

from tests.magic import shell
from tests.magic.shell import Seen
from tests.slack import SLACK
from tfgpu_magic.ground.snapshot import Snapshot
from tfgpu_magic.insight import measuring, session
from tfgpu_magic.machine.see import look


def patiently() -> None:
    """Have this process wait for the driver: what it says is tested, and not how soon."""
    for module in (measuring, session):
        mock.patch.object(module, "look", _patient).start()


def _patient(*_: object) -> Snapshot:
    return look(10.0 * SLACK)


def cells(*sources: str) -> list[Seen]:
    """Run cells in one IPython, after one that loads the extension."""
    patiently()
    return shell.cells(*sources)
