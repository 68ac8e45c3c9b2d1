"""Prints the tests of what a change touches: `scripts/test --all ROOM...` and `scripts/test --touched`.

A room is a folder of the package. `_mutants.toml` has the folders of tests of each; of any other room it is the folder
of the same name, and for a room that has none, all of them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from scripts._mutants import planted

ROOT = Path(__file__).parents[1]
HOUSE, TESTS = "tfgpu_magic", "tests"
BUDGET = 120.0
"""Seconds on the clock, all files together, of what `--touched` runs: a minute with two workers."""


def main() -> int:
    """Print paths for pytest, and return 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rooms", nargs="*", help="rooms, or paths in the package")
    parser.add_argument("--touched", metavar="COMMIT", help="what differs from a commit, and takes a minute together")
    options = parser.parse_args()
    if options.touched is None:
        print(*folders(options.rooms))
    else:
        git = ["git", "diff", "--name-only", "--diff-filter=d", options.touched]
        said = subprocess.run(git, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
        print(*touched(said.splitlines()))
    return 0


def folders(rooms: Iterable[str]) -> list[str]:
    """Return the folders of tests that a change of some rooms can turn red.

    Raises:
        SystemExit: there is no such room.
    """
    known = planted()
    found: dict[str, None] = {}
    for named in rooms:
        room = Path(named.removeprefix(f"{HOUSE}/")).parts[0]
        if not (ROOT / HOUSE / room).exists():
            raise SystemExit(f"scripts/test: there is no room {room!r} in {HOUSE}")
        own = [room] if (ROOT / TESTS / room).is_dir() else []
        for folder in known[room]["tests"] if room in known else own:
            found[f"{TESTS}/{folder}"] = None
        if room not in known and not own:
            return [TESTS]
    return [*found]


def touched(changed: Iterable[str]) -> list[str]:
    """Return files of tests for changed files: tests that changed, then the cheapest of their rooms, for a minute."""
    paths = [Path(one) for one in changed]
    own = {path.as_posix() for path in paths if path.parts[0] == TESTS and path.name.startswith("test_")}
    there = folders("/".join(path.parts[:2]) for path in paths if path.parts[0] == HOUSE)
    rows = [line.split() for line in (ROOT / TESTS / "seconds.txt").read_text().splitlines()]
    costs = {f"{TESTS}/{file}": float(clock) for _, clock, file in rows}
    near = [file for file in costs if any(file.startswith(f"{folder}/") for folder in there)]
    found, left = list[str](), BUDGET
    for file in sorted({*own, *near}, key=lambda file: (file not in own, costs.get(file, 0))):
        if costs.get(file, 0) <= left:
            left -= costs.get(file, 0)
            found.append(file)
    return found


if __name__ == "__main__":
    sys.exit(main())
