"""Plants defects in copies of the package, and asks which tests find them: what scripts/mutants does.

``mutants.toml`` has the defects. For each one, those files of tests that call its function are run, the cheapest first,
until one fails: first what ``scripts/test --fast`` runs of them, then all files of the room.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts._scratch import scratch

ROOT = Path(__file__).parents[1]
PLANTED = Path(__file__).with_name("mutants.toml")
FAST = ("-m", "(fast or smoke) and not gpu and not frameworks", "-k", "not [notebook]")  # as scripts/test has it
UNKNOWN = 20.0
"""What a file is taken for that was never measured."""

# Begins a function whose callers are sought: they may be other processes with another environment, and `os` be patched.
_MARK = '{0}try: (posix := __import__("posix")).close(posix.open("{1}", 577, 0o666))\n{0}except OSError: pass\n'


@dataclass(frozen=True)
class Defect:
    """What is put in the place of a text that stands in a function, which is named by module and name."""

    name: str
    room: str
    at: str
    text: str
    put: str
    kind: str

    def planted(self) -> tuple[Path, str]:
        """Return the file, from the package's folder on, and its source with the defect.

        Raises:
            SystemExit: the function is not there, or has the text not exactly once.
        """
        file, function = self.function()
        lines = (ROOT / file).read_text().splitlines(keepends=True)
        body = "".join(lines[function.lineno - 1 : function.end_lineno])
        if body.count(self.text) != 1:
            raise self._gone(f"has {self.text!r} {body.count(self.text)} times")
        lines[function.lineno - 1 : function.end_lineno] = [body.replace(self.text, self.put)]
        return file, "".join(lines)

    def function(self) -> tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]:
        """Return the file and the function.

        Raises:
            SystemExit: it is not there.
        """
        names = self.at.split(".")
        for length in range(1, len(names)):
            file = Path("tfgpu_magic", *names[:length]).with_suffix(".py")
            if (ROOT / file).is_file():
                node: Any = ast.parse((ROOT / file).read_text())
                for name in names[length:]:
                    node = next((one for one in ast.walk(node) if getattr(one, "name", None) == name), ast.Pass())
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    return file, node
        raise self._gone("is not there")

    def _gone(self, why: str) -> SystemExit:
        return SystemExit(f"scripts/mutants.toml: {self.name}: {self.at} {why}. Renew it or take it out")


class Tests:
    """Runs files of tests, in a copy of the package each, with the options that choose from what they have.

    Attributes:
        red: the tests that fail without any defect.
    """

    def __init__(self, *options: str) -> None:
        self.red: list[str] = []
        self._options = options
        self._calls: dict[str, tuple[set[str], float]] = {}
        self._locks: dict[str, threading.Lock] = {}

    def finds(self, defect: Defect, files: Iterable[str]) -> str:
        """Return the first test that finds a defect; nothing if none does."""
        there, source = defect.planted()
        for file in files:
            with self._locks.setdefault(file, threading.Lock()):
                if file not in self._calls:
                    self._calls[file] = self._unchanged(file)
            calls, took = self._calls[file]
            if defect.at in calls:
                with _copy({there: source}) as folder:
                    if failed := self._failed(folder, file, 30 + 5 * took):
                        return failed
        return ""

    def _unchanged(self, file: str) -> tuple[set[str], float]:
        """Return which functions of defects a file calls, and in how many seconds; of one that fails nothing."""
        begun = time.monotonic()
        with scratch() as marks, _copy(_marked(Path(marks))) as folder:
            Path(marks).chmod(0o777)  # some tests are other users
            if failed := self._failed(folder, file, 300):
                self.red.append(failed)
                return set(), 0.0
            return {mark.name for mark in Path(marks).iterdir()}, time.monotonic() - begun

    def _failed(self, folder: Path, file: str, limit: float) -> str:
        """Return the first test that fails, or the file if it does not end; nothing if all pass."""
        command = [sys.executable, "-m", "pytest", "-qx", "--tb=no", "-p", "no:cacheprovider", f"--timeout={limit}"]
        environment = {**os.environ, "PYTHONPATH": str(folder)}  # before the working tree, for children too
        with (folder / "said").open("w") as said:
            tests = subprocess.Popen(
                [*command, *self._options, file],
                cwd=folder,
                env=environment,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
            try:
                status = tests.wait(2 * limit)
            except subprocess.TimeoutExpired:
                os.killpg(tests.pid, signal.SIGKILL)
                status = tests.wait()
        if status in (0, 5):  # pytest's for all passed, and for none was there
            return ""
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", (folder / "said").read_text(), re.MULTILINE)
        return failed[1] if failed else file


@contextlib.contextmanager
def _copy(sources: dict[Path, str]) -> Iterator[Path]:
    """Copy the working tree, with other sources in the place of some; what is installed is linked."""
    with scratch() as made:
        folder = Path(made)
        left = shutil.ignore_patterns(".git", ".venv*", ".prometheus", ".*_cache", ".yarn", "node_modules")
        shutil.copytree(ROOT, folder, symlinks=True, ignore=left, dirs_exist_ok=True)
        for one in (".venv", ".prometheus"):
            (folder / one).symlink_to(ROOT / one)
        folder.chmod(0o755)  # some tests are other users
        for file, source in sources.items():
            (folder / file).write_text(source)
        yield folder


def _marked(marks: Path) -> dict[Path, str]:
    """Return sources of which each function that is to have a defect makes a file of its name when it is called."""
    places: dict[Path, dict[int, str]] = {}
    for defect in read():
        file, function = defect.function()
        first = function.body[1 if ast.get_docstring(function) else 0]
        line = min([first.lineno, *(one.lineno for one in getattr(first, "decorator_list", []))])
        places.setdefault(file, {})[line] = _MARK.format(" " * first.col_offset, marks / defect.at)
    return {
        file: "".join(
            lines.get(number, "") + line
            for number, line in enumerate((ROOT / file).read_text().splitlines(keepends=True), start=1)
        )
        for file, lines in places.items()
    }


def _toml() -> dict[str, dict[str, Any]]:
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    found: dict[str, dict[str, Any]] = toml.loads(PLANTED.read_text())
    return found


def read() -> list[Defect]:
    """Return the defects, in their order."""
    return [Defect(name, room, **one) for room, its in _toml().items() for name, one in its.items() if name != "tests"]


def _files(*options: str, within: float = math.inf) -> list[str]:
    """Return the files of tests that options choose from and that take so many seconds at most, the cheapest first."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", *options]
    said = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    known = (line.split() for line in (ROOT / "tests" / "seconds.txt").read_text().splitlines())
    cost = {f"tests/{file}": float(clock) for _, clock, file in known}
    chosen = re.findall(r"^(\S+\.py): \d+$", said, re.MULTILINE)
    return sorted((one for one in chosen if cost.get(one, UNKNOWN) <= within), key=lambda one: cost.get(one, UNKNOWN))


def main() -> int:
    """Print a line for each defect and a table by room; return 1 if a test fails without a defect."""
    parser = argparse.ArgumentParser("scripts/mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="rooms and defects; without any, all")
    parser.add_argument("--fast", action="store_true", help="run only what scripts/test --fast runs")
    parser.add_argument(
        "--within", type=float, default=math.inf, metavar="SECONDS", help="leave out a room's dearer files"
    )
    given = parser.parse_args()
    defects = [one for one in read() if not given.names or {one.name, one.room} & set(given.names)]
    if unknown := set(given.names) - {name for one in defects for name in (one.name, one.room)}:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    fast, rest = Tests(*FAST), Tests()
    chosen, every = _files(*FAST), [] if given.fast else _files(within=given.within)
    folders = {room: {f"tests/{folder}" for folder in its["tests"]} for room, its in _toml().items()}

    def judge(defect: Defect) -> tuple[str, str]:
        by, test = "fast", fast.finds(defect, chosen)
        if not test:
            by, test = (
                "room",
                rest.finds(defect, (one for one in every if one.rpartition("/")[0] in folders[defect.room])),
            )
        print(f"{defect.name:4} {f'{by}: {test}' if test else 'none'}\n", end="", flush=True)
        return defect.room, by if test else "none"

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = Counter(pool.map(judge, defects))
    print("\n| room | planted | found by `--fast` | with the room's files | by none |\n|---|---|---|---|---|")
    for room in folders:
        counts = [found[room, by] for by in ("fast", "room", "none")]
        if sum(counts):
            print(f"| {room} | {sum(counts)} | {counts[0]} | {counts[0] + counts[1]} | {counts[2]} |")
    for test in fast.red + rest.red:
        print(f"scripts/mutants: {test} fails without a defect: its file has judged none", file=sys.stderr)
    return 1 if fast.red + rest.red else 0


if __name__ == "__main__":
    sys.exit(main())
