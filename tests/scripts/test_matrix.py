"""What was run is written down as it was, and the page shows no more than that."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import _docs_parts, _matrix

REPORT = '<testsuites><testsuite tests="9" failures="1" errors="1" skipped="2" /></testsuites>'
ROOT = Path(__file__).parents[2]


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    seen = {"oldest": {"date": "2030-01-31", "python": "3.11.7", "tensorflow": '2.16"2', "passed": 3, "failed": 0}}
    (tmp_path / "seen.toml").write_text(_matrix.written(seen))

    assert _matrix.read(tmp_path / "seen.toml") == seen
    assert _matrix.read(tmp_path / "none.toml") == {}


def test_failures_and_errors_are_both_counted(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)

    assert _matrix._counts(tmp_path / "report.xml") == {"passed": 5, "failed": 2, "skipped": 2}


def test_the_page_shows_failures_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    run = {"date": "2030-01-31", "python": "3.11.7", "jax": "0.10", "passed": 3, "failed": 1, "skipped": 0}
    monkeypatch.setattr(_matrix, "read", lambda: {"frameworks": run})

    assert _docs_parts.matrix().splitlines()[2:] == [
        "| JAX on a simulated GPU, and PyTorch | 3.11.7 | jax 0.10 | 2030-01-31 | 3 passed, 1 failed |"
    ]


def test_the_committed_runs_are_of_environments_that_there_are() -> None:
    seen = _matrix.read()

    assert seen
    assert (ROOT / "tests" / "matrix.toml").read_text() == _matrix.written(seen)


def test_the_oldest_that_are_run_are_the_oldest_that_are_promised() -> None:
    project, constraints, environment = (
        (ROOT / name).read_text()
        for name in ("pyproject.toml", "scripts/constraints/oldest.txt", "scripts/_environment")
    )
    promised = dict(reversed(re.findall(r'"([\w-]+)>=([\d.]+)"', project)))  # an extra may want a later one
    own = project.partition("\ndependencies = [")[2].partition("]")[0]
    needed = set(re.findall(r'^    "([\w-]+)>=[\d.]+"', own, re.M))
    run = dict(re.findall(r"([\w-]+)[=~]=([\d.]+)\.\d", environment.partition("\noldest='")[2].partition("'")[0]))

    assert set(run) == needed | {"jupyterlab", "notebook", "tensorflow"}
    for name, version in run.items():
        assert version == promised[name] or version == f"{promised[name]}.0"
        assert f"\n{name}=={version}." in constraints


def test_the_test_that_the_oldest_leave_out_is_one_that_there_is() -> None:
    left_out = (ROOT / "scripts" / "oldest").read_text().partition("--deselect '")[2].partition("'")[0]
    file, _, name = left_out.partition("::")

    assert f"\ndef {name}(" in (ROOT / file).read_text()
