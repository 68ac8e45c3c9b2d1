"""Plants defects in copies of the package, and asks which tests find them: what scripts/mutants does.

``_mutants.toml`` has the defects. For each one, those files of tests that call its function are run, the cheapest
first, until one fails: first what ``scripts/test --fast`` runs of them, then all files of the room.
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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts._scratch import scratch

ROOT = Path(__file__).parents[1]
PLANTED = Path(__file__).with_name("_mutants.toml")
FAST = ("-m", "(fast or smoke) and not gpu and not frameworks", "-k", "not [notebook]")  # as scripts/test has it
LIMIT = 120
"""Seconds after which a test hangs."""

MARKS = "MUTANTS_MARKS"
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)

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
        return SystemExit(f"scripts/_mutants.toml: {self.name}: {self.at} {why}. Renew it or take it out")


class Tests:
    """Runs files of tests in copies of the package, with the options that choose from what they have.

    Attributes:
        red: the tests that fail without any defect.
    """

    def __init__(self, files: list[str], *options: str) -> None:
        self.red: list[str] = []
        self._files, self._options = files, options
        self._calls: dict[str, list[str]] | None = None  # by the function of a defect, the files
        self._took, self._lock = 0.0, threading.Lock()

    def finds(self, defect: Defect) -> str:
        """Return the first test that finds a defect; nothing if none does."""
        there, source = defect.planted()
        with self._lock:  # asked once for all defects
            if self._calls is None:
                self._calls = self._unchanged() if self._files else {}
        files = self._calls.get(defect.at, [])
        with _copy({there: source}) as folder:
            failed = self._failed(folder, files, "-x", f"--timeout={LIMIT}", limit=60 + 3 * self._took) if files else []
        return failed[0] if failed else ""

    def _unchanged(self) -> dict[str, list[str]]:
        """Return which files call a function, without those that fail."""
        begun, calls = time.monotonic(), dict[str, list[str]]()
        with scratch() as marks, _copy(_marked(Path(marks))) as folder:
            Path(marks).chmod(0o777)  # some tests are other users
            (folder / "calls").touch()
            self.red = self._failed(folder, self._files, marks=marks)
            for test in self.red:
                print(f"scripts/mutants: {test} fails without a defect: its file judges none", file=sys.stderr)
            for line in (folder / "calls").read_text().splitlines():
                file, *functions = line.split()
                for function in functions if not any(one.startswith(file) for one in self.red) else ():
                    calls.setdefault(function, []).append(file)
        self._took = time.monotonic() - begun
        return calls

    def _failed(
        self, folder: Path, files: list[str], *options: str, limit: float | None = None, marks: str = ""
    ) -> list[str]:
        """Return the tests that fail, and what it is if no test is to blame."""
        command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider", "-p", "scripts._mutants"]
        # Before the working tree, for children too.
        environment = {**os.environ, "PYTHONPATH": str(folder), MARKS: marks}
        with (folder / "said").open("w") as said:
            tests = subprocess.Popen(
                [*command, *options, *self._options, *files],
                cwd=folder, env=environment, stdout=said, stderr=said, start_new_session=True,
            )  # fmt: skip
            try:
                tests.wait(limit)
            except subprocess.TimeoutExpired:
                os.killpg(tests.pid, signal.SIGKILL)
                tests.wait()
        failed = FAILED.findall((folder / "said").read_text())
        return failed if failed or tests.returncode in (0, 5) else [f"status {tests.returncode}"]  # 5: there was none


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems() -> None:
    """Have the files that take least run first, once they are marked by what they take."""
    apart = _apart()
    known = apart._seconds()
    apart._seconds = lambda: {file: (processors, -clock) for file, (processors, clock) in known.items()}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Write down which functions a file has called once it is over."""
    try:
        return (yield)
    finally:
        if os.environ[MARKS] and (nextitem is None or nextitem.path != item.path):
            called = sorted(Path(os.environ[MARKS]).iterdir())
            with Path("calls").open("a") as calls:
                print(item.path.relative_to(Path.cwd()), *(one.name for one in called), file=calls)
            for one in called:
                one.unlink()


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


def _apart() -> Any:
    """Return the plug-in that runs each file by itself; pytest must be the first to import it."""
    return importlib.import_module("tests.apart")


def planted() -> dict[str, dict[str, Any]]:
    """Return what `_mutants.toml` has, by room."""
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    found: dict[str, dict[str, Any]] = toml.loads(PLANTED.read_text())
    return found


def read() -> list[Defect]:
    """Return the defects, in their order."""
    return [
        Defect(name, room, **one) for room, its in planted().items() for name, one in its.items() if name != "tests"
    ]


def _files(*options: str, within: float = math.inf) -> list[str]:
    """Return the files of tests that options choose from and that take so many seconds at most."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", *options]
    said = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    chosen = re.findall(r"^(\S+\.py): \d+$", said, re.MULTILINE)
    apart = _apart()
    known = apart._seconds()
    return [one for one in chosen if known.get(one.removeprefix("tests/"), apart.UNKNOWN)[1] <= within]


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
    fast, every = Tests(_files(*FAST), *FAST), [] if given.fast else _files(within=given.within)
    rooms = {
        room: Tests([one for one in every if one.split("/")[1] in its["tests"]]) for room, its in planted().items()
    }

    def judge(defect: Defect) -> tuple[str, str]:
        by, test = "fast", fast.finds(defect)
        if not test:
            by, test = "room", rooms[defect.room].finds(defect)
        print(f"{defect.name:4} {f'{by}: {test}' if test else 'none'}\n", end="", flush=True)
        return defect.room, by if test else "none"

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = Counter(pool.map(judge, defects))
    print("\n| room | planted | found by `--fast` | with the room's files | by none |\n|---|---|---|---|---|")
    for room in rooms:
        counts = [found[room, by] for by in ("fast", "room", "none")]
        if sum(counts):
            print(f"| {room} | {sum(counts)} | {counts[0]} | {counts[0] + counts[1]} | {counts[2]} |")
    return 1 if any(tests.red for tests in (fast, *rooms.values())) else 0


if __name__ == "__main__":
    sys.exit(main())
