"""What docs/ shows was run: notebook cells (``In [1]:``) in a kernel, and Python (``>>>``), on the demo's machine."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from scripts._machine import simulated
from scripts._notebooks import run
from tests.notebooks.reading import shown

PAGES = sorted((Path(__file__).parents[2] / "docs").glob("*.md"))
_CELL = re.compile(r"^In \[\d+\]: ", re.MULTILINE)
_PROMPT = "   ...: "
_VARYING = re.compile(
    r"(?<=^ {3}\d) +\d+(?= +[CGM] )|\b\d+\.\d+ s\b|^The first isolated cell.*\n|\b2\.\d+\.\d+\b", re.MULTILINE
)
"""Process ids, durations, what one notebook says once, and TensorFlow's version."""
_FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def _blocks(page: Path, language: str) -> list[str]:
    """The blocks of code of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def _cells(page: Path) -> list[tuple[str, str]]:
    """The cells that a page shows, each with its output."""
    return [_split(cell) for block in _blocks(page, "ipythonconsole") for cell in _CELL.split(block)[1:]]


def _split(cell: str) -> tuple[str, str]:
    first, *rest = cell.splitlines()
    more = [line for line in rest if line.startswith(_PROMPT.rstrip())]
    source = "\n".join([first, *(line[len(_PROMPT) :] for line in more)])
    return source, "\n".join(rest[len(more) :])


def _same(wanted: str, got: str) -> bool:
    wanted, got = (_VARYING.sub("", text).strip() for text in (wanted, got))
    return doctest.OutputChecker().check_output(wanted + "\n", got + "\n", _FLAGS)


@pytest.mark.parametrize("page", [page for page in PAGES if _cells(page)], ids=lambda page: page.stem)
def test_cells_show_what_the_page_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    cells = _cells(page)
    made = [nbformat.v4.new_code_cell(source, metadata={"tags": ["raises-exception"]}) for source, _ in cells]  # type: ignore[no-untyped-call]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path = tmp_path / "page.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=made, metadata=kernel), path)  # type: ignore[no-untyped-call]

    outputs = shown(run(path))

    assert len(outputs) == len(cells)  # no cell stands twice
    differing = [(source, wanted, outputs[source]) for source, wanted in cells if not _same(wanted, outputs[source])]
    assert differing == []


@pytest.mark.parametrize("page", [page for page in PAGES if _blocks(page, "pycon")], ids=lambda page: page.stem)
def test_examples_give_what_the_page_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    (tmp_path / "examples.txt").write_text("\n".join(_blocks(page, "pycon")))
    code = "\n".join([
        "import doctest, sys, re",
        "from tests.scripts.test_docs_examples import _FLAGS, _VARYING",
        "class Checker(doctest.OutputChecker):",
        "    def check_output(self, *texts):",
        "        return super().check_output(*(_VARYING.sub('', text) for text in texts[:2]), texts[2])",
        "doctest.OutputChecker = Checker",
        "sys.exit(doctest.testfile('examples.txt', module_relative=False, optionflags=_FLAGS).failed)",
    ])  # fmt: skip

    with simulated() as machine:
        command = [sys.executable, "-c", code]
        environment = {"PYTHONPATH": str(PAGES[0].parents[1]), "IPYTHONDIR": str(tmp_path)}
        done = machine.run(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)

    assert (done.returncode, done.stdout) == (0, "")
