"""README.md agrees with the package: its table of words, its picture of the house, its commands and links."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from scripts._machine import named
from tfgpu_magic.config import grammar
from tfgpu_magic.simgpu import Machine

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def _block(part: str) -> str:
    """The one block of code that has this in it."""
    (block,) = (block for block in README.split("```")[1::2] if part in block)
    return block.partition("\n")[2]


def _house() -> list[str]:
    """The paths in the picture of the house, from the repository's root."""
    paths: list[str] = []
    above: dict[int, str] = {}
    for line in _block("tfgpu_magic/\n").splitlines():
        name = line.split()[0]
        depth = len(line) - len(line.lstrip())
        above = {d: path for d, path in above.items() if d < depth}
        paths.append("".join(above.values()) + name)
        if name.endswith("/"):
            above[depth] = name
    return paths


def test_the_words_are_those_of_the_grammar() -> None:
    rows = [f"| {' <br> '.join(f'`{form}`' for form in word.usage)} | {word.meaning} |" for word in grammar.WORDS]

    table = README.partition("## The words\n\n")[2].partition("\n\n")[0].splitlines()
    assert rows == table[2:]


def test_the_refusal_is_what_is_said() -> None:
    asked, _, said = _block("UsageError").partition("UsageError: ")
    ask = f"import tfgpu_magic; tfgpu_magic.plan({asked.strip().partition('%tf_gpu ')[2]!r})"

    with Machine.create("4x16GiB") as machine:
        for name in ("first.ipynb", "second.ipynb"):
            with named(name):
                machine.add_neighbour("6809MiB@0")
        done = machine.run([sys.executable, "-c", ask], stderr=subprocess.PIPE, text=True)

    assert done.stderr.partition("Refused: ")[2].splitlines() == said.splitlines()


def test_every_path_in_the_picture_of_the_house_exists() -> None:
    assert [path for path in _house() if not (ROOT / path).exists()] == []


def test_every_room_is_in_the_picture_of_the_house() -> None:
    package = ROOT / "tfgpu_magic"
    rooms = [f"tfgpu_magic/{path.parent.name}/" for path in package.glob("*/__init__.py")]
    modules = [
        path.relative_to(ROOT).as_posix()
        for path in package.rglob("*.py")
        if "simgpu" not in path.parts and (path.name != "__init__.py" or path.parent == package)
    ]

    assert set(rooms + modules) <= set(_house())


def test_every_command_named_can_be_run() -> None:
    named = set(re.findall(r"scripts/(\w+)", README))

    assert {"demo", "test", "lint", "bench", "notebooks"} <= named
    assert [name for name in named if not os.access(ROOT / "scripts" / name, os.X_OK)] == []


def test_every_link_within_the_repository_leads_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("http")]

    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
