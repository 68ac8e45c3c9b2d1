"""Eight notebooks of 6 GiB take turns on one GPU of 8 GiB: cells at random, `park --auto --when-needed` in each.

`python -m scripts._turns --minutes 10`. It fails if a cell fails or does not end, if a model is not as it was, if a
kernel dies, as at a synchronisation while its state is away, or if one was brought back without room.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.jupyter import Notebook, serving
from tests.parking.notebooks import Site, home, is_parked, park
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.monitor.pids import began
from tfgpu_magic.parking import client
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.simgpu import Machine

LATEST = 30.0
"""Seconds, for each notebook, in which the last cells end."""


@dataclass
class Turns:
    """What has come of it.

    Attributes:
        cells: how many cells ran.
        failed: what cells that failed said.
        waited: the seconds that each cell took.
        returns: how often each notebook has come back.
    """

    cells: int = 0
    failed: list[str] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    returns: list[int] = field(default_factory=list)


class Player:
    """One notebook, which runs a cell now and then.

    Args:
        notebook: the notebook.
        digest: that of its model.
        pauses: makes the pauses between its cells.
    """

    def __init__(self, notebook: Notebook, digest: str, pauses: random.Random) -> None:
        self.notebook = notebook
        self._digest, self._pauses = digest, pauses
        self.said = ""  # by the last cell
        self._asked = ""
        self._begun = time.monotonic()

    @property
    def waits(self) -> bool:
        """Whether a cell of it runs."""
        return bool(self._asked)

    def begin(self) -> None:
        """Run a cell, if its pause is over."""
        if not self.waits and time.monotonic() > self._begun:
            self._asked, self.said, self._begun = self.notebook.client.execute("print(digest())"), "", time.monotonic()

    def hear(self, turns: Turns) -> None:
        """Note what the cell has said, and that it has ended."""
        if self.waits and began(self.notebook.pid) is None:
            self.give_up(turns, f"its kernel has ended. {self.said}")
        while self.notebook.client.iopub_channel.msg_ready():
            message = self.notebook.client.get_iopub_msg(timeout=1)
            content = message["content"]
            self.said += str(content.get("text") or content.get("evalue") or "")
            ours = message["parent_header"].get("msg_id") == self._asked
            if ours and content.get("execution_state") == "idle":
                turns.cells += 1
                turns.waited.append(time.monotonic() - self._begun)
                if self._digest not in self.said:
                    turns.failed.append(f"{self.notebook.path}: {self.said}")
                self._asked, self._begun = "", time.monotonic() + self._pauses.uniform(0.1, 6.0)

    def give_up(self, turns: Turns, why: str) -> None:
        """Note that its cell does not end, and run no more."""
        turns.failed.append(f"{self.notebook.path}: {why}")
        self._asked, self._begun = "", float("inf")


def take_turns(site: Site, *, notebooks: int, seconds: float, size: str = "6GiB") -> Turns:
    """Have notebooks run cells at random for so long, on a GPU that has room for one of them."""
    turns = Turns()
    with contextlib.ExitStack() as stack:
        players: list[Player] = []
        for number in range(notebooks):
            notebook, digest = stack.enter_context(site.trained(f"turn-{number}.ipynb", size))
            park(notebook)
            players.append(Player(notebook, digest, random.Random(number)))
        for player in players:  # each comes back for this, when the one before lets it
            player.notebook.run("%tf_gpu park --auto 1s --when-needed")
        end = time.monotonic() + seconds
        latest = end + LATEST * notebooks * SLACK
        while time.monotonic() < end or any(player.waits for player in players):
            for player in players:
                if time.monotonic() < end:
                    player.begin()
                player.hear(turns)
                if player.waits and time.monotonic() > latest:
                    player.give_up(turns, f"its cell does not end. {player.said}")
            time.sleep(0.02)
        until(lambda: sum(not is_parked(player.notebook) for player in players) <= 1)
        entries = [client.parked(player.notebook.pid) for player in players]
        turns.returns = [entry.returns for entry in entries if entry is not None]
        lost = [entry for entry in entries if entry is not None and entry.phase is Phase.FAILED]
        turns.failed += [f"{entry.name}: it was brought back without room" for entry in lost]
    return turns


def main() -> None:
    """Do it, and print how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--notebooks", type=int, default=8)
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        Machine.create("1x8GiB") as machine,
    ):
        patch.setenv("TFGPU_MAGIC_DIR", str(Path(folder) / "board"))
        for name, value in machine.environ().items():
            patch.setenv(name, value)
        with serving(machine, home(Path(folder) / "home")) as server:
            turns = take_turns(Site(machine, server), notebooks=chosen.notebooks, seconds=60 * chosen.minutes)
    waited = sorted(turns.waited)
    print(f"{turns.cells} cells, {len(turns.failed)} failed.", *turns.failed, sep="\n")
    if waited:
        print(f"A cell took {waited[len(waited) // 2]:.1f} s in the middle, {waited[-1]:.1f} s at most.")
        print(f"They came back {sum(turns.returns)} times; the one that did least, {min(turns.returns)} times.")
    raise SystemExit(bool(turns.failed))


if __name__ == "__main__":
    main()
