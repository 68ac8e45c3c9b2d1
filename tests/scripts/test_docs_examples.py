"""What docs/ shows was run: notebook cells (``In [1]:``) in a kernel, and Python (``>>>``), on the demo's machine."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from scripts._notebooks import run
from tests.jupyter import LEAN
from tests.notebooks.reading import shown
from tfgpu_magic.command import dispatch
from tfgpu_magic.notebook.words import isolate, line
from tfgpu_magic.policy.parser import parse
from tfgpu_magic.simgpu.demo.machine import simulated_machine

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
_CELL = re.compile(r"^In \[\d+\]: ", re.MULTILINE)
_PROMPT = "   ...: "
_VARYING = re.compile(
    r"(?<=^ {3}\d) +\d+(?= +[CGM] )|\b\d+\.\d+ s\b|\bpeak \d+ MiB|^The first isolated cell.*\n|\b2\.\d+\.\d+\b",
    re.MULTILINE,
)
"""Process ids, durations, small peaks, what a kernel says once, and TensorFlow's version."""
_FENCED = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,}|~{3,}) *(?P<info>[^\n]*)\n(?P<body>.*?)^ *(?P=fence) *$", re.DOTALL | re.MULTILINE
)
_RUN = ("ipythonconsole", "pycon", "python")
_TO_TYPE = ("ini", "ipython", "promql", "sh", "toml", "yaml")
"""The kinds of blocks that are run, and of those that have no output."""
_FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def _blocks(page: Path, language: str) -> list[str]:
    """Return the blocks of code of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def _cells(page: Path) -> list[tuple[str, str]]:
    """Return the cells that a page shows, each with its output."""
    return [_split(cell) for block in _blocks(page, "ipythonconsole") for cell in _CELL.split(block)[1:]]


def _split(cell: str) -> tuple[str, str]:
    first, *rest = cell.splitlines()
    more = [line for line in rest if line.startswith(_PROMPT.rstrip())]
    source = "\n".join([first, *(line[len(_PROMPT) :] for line in more)])
    return source, "\n".join(rest[len(more) :])


def _same(wanted: str, got: str) -> bool:
    return _Checker().check_output(f"{wanted.strip()}\n", f"{got.strip()}\n", _FLAGS)


@pytest.mark.nightly
@pytest.mark.parametrize("page", [page for page in PAGES if _cells(page)], ids=lambda page: page.stem)
def test_cells_show_what_the_page_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    monkeypatch.setenv("PYTHONPATH", str(LEAN))
    cells = _cells(page)
    made = [nbformat.v4.new_code_cell(source, metadata={"tags": ["raises-exception"]}) for source, _ in cells]  # type: ignore[no-untyped-call]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path = tmp_path / "page.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=made, metadata=kernel), path)  # type: ignore[no-untyped-call]

    outputs = shown(run(path))

    assert len(outputs) == len(cells)  # no cell stands twice
    differing = [(source, wanted, outputs[source]) for source, wanted in cells if not _same(wanted, outputs[source])]
    assert differing == []


@pytest.mark.nightly
@pytest.mark.parametrize("page", [page for page in PAGES if _blocks(page, "pycon")], ids=lambda page: page.stem)
def test_examples_give_what_the_page_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    monkeypatch.setenv("PYTHONPATH", str(LEAN))
    examples = tmp_path / "examples.txt"
    examples.write_text("\n".join(_blocks(page, "pycon")))

    with simulated_machine() as machine:
        command = [sys.executable, "-m", __name__, str(examples)]
        environment = {"IPYTHONDIR": str(tmp_path)}
        done = machine.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)

    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.stem)
def test_an_output_that_is_not_run_is_called_an_example(page: Path) -> None:
    assert _unmarked(page.read_text()) == []


def test_readmes_outputs_are_in_blocks_that_are_run() -> None:
    kinds = {kind for kind, _ in _unmarked((ROOT / "README.md").read_text())}

    assert kinds == {""}  # which `test_readme` and `test_two_notebooks` run


@pytest.mark.parametrize(
    "block", ["```text\nx", "```\nx", "```json lines\nx", "1. y:\n   ```pycon\nx", "~~~sh x\nx", "```console\n$ x\ny"]
)
def test_every_block_with_an_output_is_known_as_one(block: str) -> None:
    close = "~~~" if "~~~" in block else "```"

    assert len(_unmarked(f"y\n{block}\n{close}\n")) == 1
    assert _unmarked(f"For example:\n\n{block.removeprefix('1. y:')}\n{close}\n") == []


def _unmarked(page: str) -> list[tuple[str, str]]:
    """Return the blocks of a page, each with its kind, that may have an output and are neither run nor marked."""
    return [
        (block["info"], block["body"])
        for block in _FENCED.finditer(page)
        if not (block["info"] in (_TO_TYPE if block["indent"] else (*_TO_TYPE, *_RUN)) or block["info"].startswith("{"))
        and not (block["info"] == "console" and all(line.startswith("$ ") for line in block["body"].splitlines()))
        and not page[: block.start()].rstrip().endswith("For example:")
    ]


@pytest.mark.nightly
def test_the_programs_of_the_pages_run_and_the_last_says_why_it_fails(tmp_path: Path) -> None:
    begin = "import logging as log\nfrom types import SimpleNamespace\nmodel, x, y = SimpleNamespace(fit=print), 1, 2"
    pages = [ROOT / "docs" / f"{page}.md" for page in ("scripts", "isolation", "measuring", "why")]
    *blocks, why = ("".join(_blocks(page, "python")) for page in pages)
    program = tmp_path / "program.py"
    fails = "def train():\n    return tf.zeros([2**40])"
    program.write_text("\n".join([begin, *blocks, fails, why]))

    with simulated_machine() as machine:
        done = machine.run([sys.executable, str(program)], capture_output=True, text=True)

    assert done.stdout.splitlines()[:4] == ["None", "None", "None", "1 2"]
    assert "Out of GPU memory" in done.stdout
    assert re.search(r"^tensorflow\.\S*ResourceExhaustedError: ", done.stderr, re.MULTILINE)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.stem)
def test_every_line_of_a_page_is_one(page: Path) -> None:
    text = page.read_text()
    for magic, words in _lines(text):
        parsed = line.read(words)
        if parsed.word.restart and " " in words:  # the word alone is its name
            parse(parsed.text)
        elif parsed.name == "isolate" and magic.startswith("%%") and "[" not in parsed.rest:
            isolate.read(line.with_arguments(parsed, above=True))
    for command in commands(text):
        words, _, program = command.partition(" -- ")
        name, *rest = shlex.split(words)
        said = dispatch.read([name, *rest, *(["--", program] if program else [])])
        assert parse(said.rest) if said.word.shell and said.word.shell.rest else not said.rest


def commands(page: str) -> list[str]:
    """Return what follows `tfgpu` in the commands of a page, as far as their output goes nowhere else."""
    found = re.findall(r"`tfgpu (\w+ [^`\n]+)`|^(?:\$ )?tfgpu (\w+ .+)$", page, re.MULTILINE)
    return [re.split(r" [|>] ", quoted or own)[0] for quoted, own in found]


def test_the_lines_of_pages_are_found() -> None:
    found = [_lines(page.read_text()) for page in (*PAGES, ROOT / "README.md")]

    assert sum(map(len, found)) > 150
    assert len(_lines("`%gpu growth`, `%tf_gpu top`\n```\nIn [1]: %tf_gpu pick\n  %gpu limit 1GiB   # so\n```\n")) == 4


def _lines(page: str) -> list[tuple[str, str]]:
    """Return the magics and words of the lines of a page, in its text and blocks, but for those that show an error."""
    quoted = re.findall(r"`+ *(%{1,2}(?:tf_gpu|gpu)) ([^`\n…]+?) *`", page)
    blocks = "\n".join(block["body"] for block in _FENCED.finditer(page))
    own = r"^(?:In \[\d+\]:)? *(%{1,2}(?:tf_gpu|gpu)) (\S+(?: \S+)*)(?:  .*)?$(?!\nUsageError)"
    return [*quoted, *re.findall(own, blocks, re.MULTILINE)]


class _Checker(doctest.OutputChecker):
    """Compares as `_same` does."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return super().check_output(_VARYING.sub("", want), _VARYING.sub("", got), optionflags)


def _main(examples: str) -> int:
    """Run the examples of a file in this process, and return how many fail; it tells of each."""
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(_Checker(), verbose=False, optionflags=_FLAGS)
    test = parser.get_doctest(Path(examples).read_text(), {"__name__": "__main__"}, examples, examples, 0)
    return runner.run(test).failed


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
