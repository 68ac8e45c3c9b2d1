"""The parts of docs/ that are made from the package: tables of words, flags, commands and findings, and the tree."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tfgpu_magic.command.table import COMMANDS
from tfgpu_magic.doctor.checks.table import CHECKS, outcomes
from tfgpu_magic.notebook.words import table

PACKAGE = Path(__file__).parents[1] / "tfgpu_magic"
WORDS = table.WORDS
FLAGS = table.ISOLATED.flags


def words() -> str:
    """Return the table of the words, as Markdown: docs/words.md has the same."""
    rows = [f"| {' <br> '.join(f'`{form}`' for form in word.usage)} | {word.meaning} |" for word in WORDS]
    return "\n".join(["| words | what they do |", "|---|---|", *rows])


def flags() -> str:
    """Return the table of the flags of an isolated cell, as Markdown."""
    rows = [f"| `{flag.usage}` | {flag.meaning} |" for flag in FLAGS]
    return "\n".join(["| flag | what it does |", "|---|---|", *rows])


def commands() -> str:
    """Return the table of the commands of `tfgpu`, as Markdown."""
    rows = [f"| `{f'tfgpu {command.name} {command.usage}'.rstrip()}` | {command.meaning} |" for command in COMMANDS]
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


def findings() -> str:
    """Return the table of all that `tfgpu doctor` may find, as Markdown; a fact's place is shown as dots."""
    rows = [
        f"| {'' if number else title} | {outcome.severity.value} | {_dotted(outcome.found)} | {_dotted(outcome.next)} |"
        for title, check in CHECKS.items()
        for number, outcome in enumerate(outcomes(check))
    ]
    return "\n".join(["| about | how serious | what is found | what to do next |", "|---|---|---|---|", *rows])


def _dotted(text: str) -> str:
    """Return a sentence of an outcome in one line, with what is to be pasted as code."""
    lines = [f"`{line.strip()}`" if line.startswith("  ") else line for line in text.splitlines()]
    return re.sub(r"\{\w+\}", "…", " ".join(lines)).replace("|", "\\|")


def tree() -> str:
    """Return the package's folders with their modules, each with the first line of its docstring, as Markdown."""
    folders = sorted({module.parent for module in modules()})
    return "\n\n".join(map(_folder, folders))


def first_line(module: Path) -> str:
    """Return the first line of a module's docstring; empty where it has none."""
    return (ast.get_docstring(ast.parse(module.read_text())) or "").partition("\n")[0]


def modules() -> list[Path]:
    """Return every module of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def _folder(folder: Path) -> str:
    """Return a table of the modules of a folder, below what the folder is."""
    name = folder.relative_to(PACKAGE.parent).as_posix()
    rows = [f"| `{path.name}` | {_text(path)} |" for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
    return "\n".join([f"**`{name}/`** {_text(folder / '__init__.py')}", "", "| Module | |", "|---|---|", *rows])


def _text(module: Path) -> str:
    return first_line(module).replace("``", "`").replace("|", "\\|")
