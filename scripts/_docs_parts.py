"""The parts of docs/ that are made from the package: tables of commands, flags and findings, and the tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from traitlets import TraitType
from traitlets.config import Configurable

from scripts import _matrix, _wire
from scripts._contents import KINDS
from tfgpu_magic.doctor.checks.table import CHECKS, declared_outcomes
from tfgpu_magic.lab.exporter import METRICS
from tfgpu_magic.notebook.words import table
from tfgpu_magic.policy.settings import TfGpuSettings
from tfgpu_magic.server.extension import TfGpuServer

PACKAGE = Path(__file__).parents[1] / "tfgpu_magic"
RULES = Path(__file__).parents[1] / "grafana" / "rules.yml"
WORDS = table.in_notebooks()
FLAGS = table.ISOLATED.flags
_VARIABLE = re.compile("TFGPU_[A-Z_]+")
_REQUEST = re.compile("((?:GET |POST |WebSocket )?)``((?:GET |POST )?<base>/tfgpu-magic/.*?)``: (.*)", re.DOTALL)


def words() -> str:
    """Return the commands of a notebook by group, a table each, as Markdown: docs/commands.md has the same."""
    return "\n\n".join(
        _table(
            f"## {group}\n\n| command | what it does |",
            (f"| {' <br> '.join(f'`{form}`' for form in word.usage)} | {_coded(word.meaning)} |" for word in some),
        )
        for group, some in groupby(WORDS, lambda word: word.group)
    )


def _coded(meaning: str) -> str:
    """Return a text with its flags as code: a line may not end within one."""
    return re.sub(r"(?<![`\w-])--\w[\w-]*", r"`\g<0>`", meaning)


def flags() -> str:
    """Return the table of the flags of an isolated cell, as Markdown."""
    rows = [f"| `{flag.usage}` | {flag.meaning} |" for flag in FLAGS]
    return _table("| flag | what it does |", rows)


def commands() -> str:
    """Return the commands of `tfgpu` by group, a table each, as Markdown."""
    return "\n\n".join(
        _table(
            f"**{group}**\n\n| command | what it does |",
            (f"| `{f'tfgpu {word.name} {form.usage}'.rstrip()}` | {form.meaning} |" for word, form in some),
        )
        for group, some in groupby(table.in_shells(), lambda command: command[1].group)
    )


def _table(head: str, rows: Iterable[str]) -> str:
    """Return a table below its head, whose last line has as many columns as the rows."""
    return "\n".join([head, "|---" * (head.count("|") - 1) + "|", *rows])


def settings() -> str:
    """Return the table of the settings of kernels, as Markdown."""
    return _traits(TfGpuSettings)


def server_settings() -> str:
    """Return the table of the settings of servers, as Markdown."""
    return _traits(TfGpuServer)


def _traits(owner: type[Configurable]) -> str:
    return _table(
        "| setting | default | meaning |",
        (
            f"| `{name}` | `{_default(trait)}` | {trait.help} |"
            for name, trait in vars(owner).items()  # in their order
            if isinstance(trait, TraitType) and trait.metadata.get("config")
        ),
    )


def _default(trait: TraitType[Any, Any]) -> str:
    """Return a setting's default as a configuration file has it."""
    value = trait.default()
    return f'"{value}"' if isinstance(value, str) else repr(value)


def variables() -> str:
    """Return the table of the package's own environment variables, as Markdown: each constant with its docstring."""
    found = {name: text for module in modules() for name, text in _constants(module) if _VARIABLE.fullmatch(name)}
    return _table("| variable | meaning |", (f"| `{name}` | {text} |" for name, text in sorted(found.items())))


def _constants(module: Path) -> Iterable[tuple[str, str]]:
    """Return the strings that constants of a module are, each with the docstring below it in one line."""
    for before, after in pairwise(ast.parse(module.read_text()).body):
        match before, after:
            case ast.Assign(value=ast.Constant(value=str(value))), ast.Expr(value=ast.Constant(value=str(text))):
                yield value, " ".join(text.split())


def http() -> str:
    """Return what may be asked of a Jupyter server, as Markdown: the docstrings of the handlers that begin with it."""
    classes = (node for module in modules() for node in ast.walk(ast.parse(module.read_text())))
    texts = (ast.get_docstring(node) or "" for node in classes if isinstance(node, ast.ClassDef))
    asked = sorted(found.groups() for text in texts if (found := _REQUEST.fullmatch(text)))
    return "\n\n".join(f"### `{how}{path}`\n\n{text[0].upper()}{text[1:]}" for how, path, text in asked)


def message() -> str:
    """Return what the message of the stream and of `tfgpu status --json` has, as Markdown: the page's types of it."""
    return "\n\n".join(
        _table(
            f"### {name}\n\n{_wire.meaning(name)}\n\n| member | type | what it is |",
            (f"| `{one.name}` | {_kind(one)} | {one.meaning} |" for one in members),
        )
        for name, members in _wire.types().items()
    )


def _kind(member: _wire.Member) -> str:
    kind = member.type.replace("Who", _wire.WHO).replace("|", "\\|")
    return f"`{kind}`{', or absent' * member.absent}"


def wheel() -> str:
    """Return the table of the kinds of files in the wheel, as Markdown."""
    rows = [f"| `{kind}` | {reason} |" for kind, reason in KINDS.items()]
    return _table("| files | why they are there |", rows)


def matrix() -> str:
    """Return the table of the last run of the tests in each environment, as Markdown."""
    rows = ["| environment | Python | with | day | tests |", "|---|---|---|---|---|"]
    for name, run in _matrix.read().items():
        there = ", ".join(f"{package} {run[package]}" for package in _matrix.SHOWN if package in run)
        tests = f"{run['passed']} passed" + "".join(f", {run[how]} {how}" for how in ("failed", "skipped") if run[how])
        rows.append(f"| {_matrix.ENVIRONMENTS[name].what} | {run['python']} | {there} | {run['date']} | {tests} |")
    return "\n".join(rows)


def metrics() -> str:
    """Return the table of what `tfgpu exporter` tells, as Markdown."""
    rows = [
        f"| `{name}` | {', '.join(f'`{label}`' for label in labels)} | {text} |"
        for name, (text, labels) in METRICS.items()
    ]
    return _table("| metric | labels | what it tells |", rows)


def alerts(file: Path = RULES) -> str:
    """Return the table of the alerts, as Markdown: what each says, and what to do."""
    said = re.findall(r'(alert|summary|description): "?(.*?)"?\n', re.sub(r"{{.*?}}", "…", file.read_text()))
    texts = iter(text for _, text in said)
    rows = [f"| `{name}` | {summary} | {more} |" for name, summary, more in zip(texts, texts, texts, strict=True)]
    return _table("| alert | what it says | more |", rows)


def findings() -> str:
    """Return the table of all that `tfgpu doctor` may find, as Markdown; a fact's place is shown as dots."""
    rows = [
        f"| {'' if number else title} | {one.severity.value} | {_dotted(one.template)} | {_dotted(one.next)} |"
        for title, check in CHECKS.items()
        for number, one in enumerate(declared_outcomes(check))
    ]
    return _table("| about | how serious | what is found | what to do next |", rows)


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
