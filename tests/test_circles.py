"""No circle, in any form: not by imports at the top, late or for types, not by names in strings, and not in C.

Python is read from the syntax tree, so that what is imported only on a day that no test knows counts too.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import tfgpu_magic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HOUSE = Path(tfgpu_magic.__file__).parent
C = HOUSE / "simgpu" / "src"
MOST_LATE = 32
"""Imports within functions; a new one has to be worth more than an old one."""

REASONS = {
    "tfgpu_magic.server": "jupyter_server is there when a server asks",
    "tfgpu_magic.notebook.loading": "speed of %load_ext: what a word needs is imported when it is said",
    "tfgpu_magic.engine.engine": "speed of %load_ext: what makes a report is imported when one is wanted",
    "tfgpu_magic.frameworks.tensorflow.devices": "TensorFlow is optional, and never woken",
    "tfgpu_magic.isolate.dask": "Dask is optional",
    "tfgpu_magic.isolate.values.keras_objects": "Keras is optional, and never woken",
    "tfgpu_magic.insight.session": "pandas is optional",
    "tfgpu_magic.notebook.words.policy": "speed of a first `%tf_gpu` line: most are for TensorFlow alone",
}
"""Why modules import late, where no comment beside an import says it."""

GROUND = {"_version", "errors", "ground"}
FLOORS = (
    GROUND,
    {"machine", "policy", "root", "simgpu"},
    {"claims", "frameworks", "tell"},
    {"engine"},
    {"isolate"},
    {"insight", "parking"},
    {"notebook", "server"},
    {"lab"},
    {"doctor"},
    {"command"},
    {"__init__", "__main__"},
)
"""The rooms from the ground up: folders, and the files at the top. Arrows run down; on the ground alone also across."""

Arrows = dict[str, set[str]]


class Late(NamedTuple):
    """An import within a function: where, of what, and the reason that stands beside it."""

    place: str
    line: int
    names: str
    reason: str


def modules() -> dict[str, Path]:
    """Return every module of the package by its name."""
    paths = sorted(HOUSE.rglob("*.py"))
    return {".".join((HOUSE.name, *path.relative_to(HOUSE).with_suffix("").parts)): path for path in paths}


MODULES = {name.removesuffix(".__init__"): path for name, path in modules().items()}


def named(name: str) -> set[str]:
    """Return the module that a dotted name is, or is in."""
    parts = name.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return {next(prefix for prefix in prefixes if prefix in MODULES)} if parts[0] == HOUSE.name else set()


def in_text(text: str) -> set[str]:
    """Return the modules that a string names: by a dotted name, or as code for another process does."""

    def dotted(found: re.Match[str]) -> str:
        return " ".join(f"{found[1]}.{name}" for name in found[2].split(", "))

    text = re.sub(rf"python -m {HOUSE.name}[\w.]*", "", text)  # a line for people, who come in by the front door
    text = re.sub(rf"from ({HOUSE.name}[\w.]*) import (\w+(?:, \w+)*)", dotted, text)
    found = {module for name in re.findall(rf"\b{HOUSE.name}(?:\.\w+)+", text) for module in named(name)}
    return found - {HOUSE.name}  # the front door: code for another process comes in by it, as people do


@cache
def arrows_from(module: str) -> set[str]:
    """Return every module that another one imports or names, wherever and however it does."""
    tree = ast.parse(MODULES[module].read_text())
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found |= named(alias.name)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module} has a relative import"
            for alias in node.names:
                found |= named(f"{node.module}.{alias.name}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            found |= in_text(node.value)
            if module == HOUSE.name and f"{module}.{node.value}" in MODULES:  # what it imports when it is asked for it
                found.add(f"{module}.{node.value}")
    return found - {module}


def room_of(module: str) -> str:
    """Return the folder that a module is in, or the file that it is at the top."""
    return module.split(".")[1] if "." in module else "__init__"


def within(folder: str) -> Arrows:
    """Return which file or folder in a folder of the house uses which other one there."""

    def box(module: str) -> str:
        return module.removeprefix(f"{folder}.").partition(".")[0] if module.startswith(f"{folder}.") else ""

    used = {box(module): set[str]() for module in MODULES}
    for module in MODULES:
        used[box(module)] |= {box(other) for other in arrows_from(module)}
    return {one: others - {"", one} for one, others in used.items() if one}


def circles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """Return sets of things that reach one another."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            new = arrows.get(waiting.pop(), set()) - found
            found |= new
            waiting += new
        return found

    reach = {thing: reached(thing) for thing in arrows}
    rounds = {thing: frozenset(one for one in there if thing in reach.get(one, ())) for thing, there in reach.items()}
    return sorted(sorted(one) for one in set(rounds.values()) if one)


def late() -> Iterator[Late]:
    """Return every import within a function."""
    for module, path in MODULES.items():
        text = path.read_text()
        functions = [
            node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        inside = {
            (node.lineno, node.end_lineno or node.lineno): ast.unparse(node)
            for function in functions
            for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)
        }
        for (line, end), said in inside.items():
            comments = [text.splitlines()[at - 1].partition("  # ")[2] for at in (line, end)]
            yield Late(module, line, said, next(filter(None, comments), REASONS.get(module, "")))


def c_arrows(folder: Path) -> Arrows:
    """Return which file of the simulator's C uses what another one defines, as the compiler says."""
    texts = sorted(C.glob("*.c"))
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-DSOVERSION=9", "-c", *texts], cwd=folder, check=True)
    used, defined = {}, {}
    for text in texts:
        command = ["nm", "-P", "-g", text.with_suffix(".o").name]
        lines = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.splitlines()
        symbols = [line.split()[:2] for line in lines]
        used[text.name] = {name for name, kind in symbols if kind == "U"}
        defined[text.name] = {name for name, kind in symbols if kind != "U"}
    return {user: {maker for maker in defined if used[user] & defined[maker]} for user in used}


def test_modules_are_no_circle() -> None:
    arrows = {module: arrows_from(module) for module in MODULES}

    assert circles(arrows) == []


@pytest.mark.parametrize("folder", sorted({module.rpartition(".")[0] for module in MODULES} - {"", HOUSE.name}))
def test_the_files_and_folders_of_a_room_are_no_circle(folder: str) -> None:
    assert circles(within(folder)) == []


def test_arrows_between_rooms_run_down() -> None:
    floors = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    upwards = {
        tuple(module.removeprefix(HOUSE.name).lstrip(".") for module in (user, used))
        for user in MODULES
        for used in arrows_from(user)
        if room_of(user) != room_of(used) and not floors[room_of(used)] < floors[room_of(user)]
        if not {room_of(user), room_of(used)} <= GROUND
    }

    assert upwards == set()


def test_no_class_has_the_name_of_another() -> None:
    trees = [ast.parse(path.read_text()) for path in MODULES.values()]
    names = Counter(
        node.name.lstrip("_") for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )

    assert {name for name, count in names.items() if count > 1} == set()


def test_the_simulators_c_files_are_no_circle(tmp_path: Path) -> None:
    arrows = c_arrows(tmp_path)

    assert {"cuda.c", "cuda_memory.c"} <= arrows["cuda_context.c"]
    assert "cuda.c" in arrows["cuda_copy.c"]
    assert circles(arrows) == []


def test_late_imports_are_few_and_each_has_its_reason() -> None:
    found = list(late())

    assert len(found) <= MOST_LATE
    assert [f"{one.place}:{one.line}: {one.names}" for one in found if not one.reason] == []


def test_this_finds_circles() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [["b", "c"]]
    assert in_text("import sys; from tfgpu_magic.machine import driver, collector; tfgpu_magic.errors.Refused") == {
        "tfgpu_magic.machine.driver",
        "tfgpu_magic.machine.collector",
        "tfgpu_magic.errors",
    }
