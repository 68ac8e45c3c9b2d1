"""The table of what a user may try on others and on the services, and the machine on which the tests try it.

Each attack is a test that is marked with the beginning of its row of the table in SECURITY.md.
"""

from __future__ import annotations

import os
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.lab.test_exporter import running, scraped
from tests.lab.users import as_user, root_only
from tests.machine.boards import fresh
from tests.processes import kill, ours
from tests.sizes import GIB, MIB
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.lab.idle_policy import trouble
from tfgpu_magic.machine.board import machine_board
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.tell.fetch import Watcher

FunctionT = TypeVar("FunctionT", bound=Callable[..., object])

ANN, EVE = 65534, 70002
"""The one who is attacked, whom every system calls `nobody`, and the one who attacks, who has no name."""
CONTAINERS = 200_000, 65_536
"""The first number of the users in Eve's containers, and how many there are."""
HELD = 2 * GIB
"""What Ann holds of GPU 0, and nobody else does."""
TOLD_APART = 24
"""The processes that the board tells apart here, so that Eve need not start thousands."""
SERVICE = f"""
from pathlib import Path
from tfgpu_magic.lab.service import serve
from tfgpu_magic.machine.board import snapshot_file
from tfgpu_magic.machine.owners import users
snapshot_file.MOST_PROCESSES = {TOLD_APART}
users.SUBORDINATES = Path({{subordinates!r}})
serve()
"""
TRIED: list[str] = []
"""The beginnings of the rows, in the order of the tests."""


def attack(tried: str) -> Callable[[FunctionT], FunctionT]:
    """Mark a test as an attack, with the beginning of its row."""

    def mark(test: FunctionT) -> FunctionT:
        TRIED.append(tried)
        marked: FunctionT = root_only(test)
        return marked

    return mark


class Lab:
    """A machine with the service and the exporter, and Ann, who computes there.

    Attributes:
        machine: it, of two GPUs.
        folder: one that all users can reach.
        service: the service's process.
        exporter: the exporter's.
        url: where it answers.
        ann: Ann's process.
    """

    def __init__(self, machine: Machine, folder: Path, stack: ExitStack) -> None:
        self.machine, self.folder = machine, folder
        self.board = machine_board.folder()
        for user in (ANN, EVE):
            self.home(user).mkdir(mode=0o700)
            os.chown(self.home(user), user, user)
        subordinates = folder / "subuid"
        subordinates.write_text(f"{EVE}:{CONTAINERS[0]}:{CONTAINERS[1]}\n")
        code = SERVICE.format(subordinates=str(subordinates))
        self.service = stack.enter_context(machine.popen([sys.executable, "-c", code]))
        stack.callback(self.service.kill)
        until(lambda: (seen := machine_board.read_published()) and fresh(seen))
        self.exporter, self.url = stack.enter_context(running(machine, "exporter", "--port", "0"))
        self.ann = stack.enter_context(machine.add_neighbour("2GiB@0", name="secret.ipynb", user=ANN))
        with closing(Watcher()) as watcher:  # what a fork finds imported, its user need not read
            watcher.read()

    def home(self, user: int) -> Path:
        """Return a folder of a user's, which no other can enter."""
        return self.folder / str(user)

    def seen(self, user: int) -> Any:
        """Return the table that a user's views show; an error where it does not come."""

        def see() -> Any:
            os.environ["TFGPU_MAGIC_DIR"] = str(self.home(user) / "board")
            with closing(Watcher()) as watcher:
                return until(watcher.read, lambda table: not trouble(table))

        return as_user(user, see)

    def scraped(self) -> bytes:
        """Return all that the exporter tells, as it is."""
        with urllib.request.urlopen(self.url, timeout=60 * SLACK) as answer:
            return bytes(answer.read())

    def told(self, name: str = "held_bytes") -> dict[tuple[str, ...], float]:
        """Return a metric of the exporter's, by GPU and user."""
        return scraped(self.url).get(name, {})

    def true(self) -> bool:
        """Tell whether Ann sees her memory, and all of it, and Prometheus is told the same."""
        rows = self.seen(ANN).processes
        mine = [(row.process.gpu, row.process.held) for row in rows if row.owner.who == "mine"]
        told = {gpu: held for (gpu, user), held in self.told().items() if user == "nobody"}
        return mine == [("0", HELD)] and told == {"0": HELD}


@contextmanager
def laboratory() -> Iterator[Lab]:
    """Give the machine."""
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory() as folder,
        Machine.create("2x16GiB", context=16 * MIB) as machine,
        ExitStack() as stack,
    ):
        for name, value in machine.environ().items():
            patch.setenv(name, value)
        patch.setenv("TFGPU_MAGIC_DIR", f"{folder}/root")
        for path, mode in ((Path(folder), 0o755), (machine.path.parent, 0o755), (machine.path, 0o666)):
            path.chmod(mode)
        stack.callback(lambda: kill(*ours(machine, "tfgpu_magic")))
        yield Lab(machine, Path(folder), stack)
