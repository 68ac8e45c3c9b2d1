"""Eight notebooks of 6 GiB take turns on one GPU of 8 GiB: cells at random, `park --auto --when-needed` in each.

`python -m scripts._turns --minutes 10`. It fails if a cell fails, or if a model is not as it was.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.jupyter import Notebook, serving
from tests.parking.notebooks import Site, home, is_parked, park
from tests.waiting import until
from tfgpu_magic.simgpu import Machine


@dataclass
class Turns:
    """What has come of it.

    Attributes:
        cells: how many cells ran.
        failed: what cells that failed said.
        waited: the seconds that each cell took.
    """

    cells: int = 0
    failed: list[str] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)


def take_turns(site: Site, *, notebooks: int, seconds: float, size: str = "6GiB") -> Turns:
    """Have notebooks run cells at random for so long, on a GPU that has room for one of them."""
    turns, lock = Turns(), threading.Lock()
    with contextlib.ExitStack() as stack:
        opened: list[tuple[Notebook, str]] = []
        for number in range(notebooks):
            opened.append(stack.enter_context(site.trained(f"turn-{number}.ipynb", size)))
            park(opened[-1][0])
        for notebook, _ in opened:  # each comes back for this, when the one before lets it
            notebook.run("%tf_gpu park --auto 1s --when-needed")
        end = time.monotonic() + seconds

        def work(notebook: Notebook, digest: str, pauses: random.Random) -> None:
            while time.monotonic() < end:
                time.sleep(pauses.uniform(0.1, 6.0))
                begun = time.monotonic()
                try:
                    said = notebook.run("print(digest())")
                except Exception as error:
                    said = repr(error)
                with lock:
                    turns.cells += 1
                    turns.waited.append(time.monotonic() - begun)
                    if digest not in said:
                        turns.failed.append(f"{notebook.path}: {said}")

        threads = [
            threading.Thread(target=work, args=(*one, random.Random(number))) for number, one in enumerate(opened)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(lambda: sum(not is_parked(notebook) for notebook, _ in opened) <= 1)
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
    raise SystemExit(bool(turns.failed))


if __name__ == "__main__":
    main()
