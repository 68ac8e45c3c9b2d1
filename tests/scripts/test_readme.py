"""README.md and the table of commands agree with the package: usage, refusal, scripts and links."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from scripts._docs_parts import words
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.simgpu.demo.machine import KERNEL, as_notebook

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def _block(part: str) -> str:
    """Return the one block of code that has this in it."""
    (block,) = (block for block in README.split("```")[1::2] if part in block)
    return block.partition("\n")[2]


def test_it_is_short() -> None:
    prose = re.sub(r"```.*?```|<picture>.*?</picture>", "", README, flags=re.DOTALL)

    assert len(prose.split()) <= 600


def test_the_commands_are_those_of_the_grammar() -> None:
    assert words().strip() in (ROOT / "docs" / "commands.md").read_text()


def test_the_refusal_is_what_is_said() -> None:
    asked, _, said = _block("UsageError").partition("UsageError: ")
    ask = f"import tfgpu_magic; tfgpu_magic.apply({asked.strip().partition('%tf_gpu ')[2]!r})"

    with Machine.create("1x16GiB") as machine:
        for name in ("first.ipynb", "second.ipynb"):
            with as_notebook(name):
                machine.add_neighbour("7066MiB@0", name=KERNEL)
        done = machine.run([sys.executable, "-c", ask], stderr=subprocess.PIPE, text=True)

    assert done.stderr.partition("Refused: ")[2].splitlines() == said.splitlines()


def test_every_command_is_named_and_can_be_run() -> None:
    named = set(re.findall(r"scripts/([a-z]+)", README + CONTRIBUTING))
    commands = {path.name for path in (ROOT / "scripts").iterdir() if path.is_file() and path.name[0] != "_"}

    assert named == commands
    assert [name for name in named if not os.access(ROOT / "scripts" / name, os.X_OK)] == []


def test_every_link_within_the_repository_leads_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README + CONTRIBUTING) if not link.startswith("http")]
    pictures = re.findall(r"""(?:src|srcset)="([^"]+)""", README)

    assert links
    assert [link for link in links + pictures if not (ROOT / link.partition("#")[0]).exists()] == []
