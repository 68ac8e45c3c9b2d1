"""The notebook about isolation does what its text says, and its committed outputs are what it shows now."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from scripts._notebooks import FOLDER, run
from tests.isolate.notebook import notebook
from tests.notebooks import reading
from tfgpu_magic.simgpu import Machine

pytestmark = pytest.mark.nightly

ISOLATION = FOLDER / "isolation.ipynb"


@pytest.fixture(scope="module")
def now() -> dict[str, str]:
    """What the notebook shows now; a cell that fails and is not tagged for it fails every test here."""
    return reading.shown(run(ISOLATION))


@pytest.fixture(scope="module")
def committed() -> Any:
    return reading.committed(ISOLATION)


def _with(now: dict[str, str], *parts: str) -> str:
    """Return what the one cell shows that has all this in it."""
    (text,) = (text for source, text in now.items() if all(part in source for part in parts))
    return text


def test_one_cell_gives_back_what_it_filled_and_says_what_is_gone(now: dict[str, str]) -> None:
    shown = _with(now, "-o history,model")

    assert re.search(r"peak \d+ MiB in use on GPU (\d), 1\d\.\d GiB of GPU \1 given back\.", shown)
    assert "Gone with its process: layers, guesses. To bring back: -o layers,guesses" in shown


@pytest.mark.parametrize("look", ["%tf_gpu", "%tf_gpu #2"])
def test_this_notebook_holds_nothing_afterwards(look: str, now: dict[str, str]) -> None:
    assert "this notebook" not in now[look].lower()
    assert len(re.findall(r"^ +[03] .* 0\.0 / 16 GiB ", now[look], re.MULTILINE)) == 2
    assert "TensorFlow is not imported yet." in now[look]


def test_a_model_comes_back_as_a_handle_that_loads_in_another_cell(now: dict[str, str]) -> None:
    assert "100,609 parameters" in now["model"]
    assert _with(now, "%%tf_gpu", "model.load()").startswith("100609\nIsolated: ")


def test_the_plain_loop_runs_out(now: dict[str, str]) -> None:
    shown = _with(now, "%%tf_gpu", "train(units)")

    assert re.findall(r"(\d+) units: trained", shown) == ["16"]
    assert "ResourceExhaustedError: " in shown
    assert "12.2 GiB of GPU 0 given back." in shown


def test_with_a_process_each_five_models_are_trained(now: dict[str, str]) -> None:
    five = ["16", "32", "64", "128", "256"]

    assert re.findall(r"(\d+) units: trained", _with(now, "train_alone(units)")) == five
    assert re.findall(r"^ *(\d+) +3 ", _with(now, "units  epochs  loss"), re.MULTILINE) == five


def test_four_at_a_quarter_run_at_once_on_one_gpu(now: dict[str, str]) -> None:
    rows = re.findall(r"^ *[\d.]+ +([\d.]+) s +([\d.]+) s +([\d.]+) GiB", _with(now, "executor.map"), re.MULTILINE)

    assert len(rows) == 4
    assert max(float(begin) for begin, _, _ in rows) < min(float(end) for _, end, _ in rows)
    assert all(3.5 < float(held) <= 4 for _, _, held in rows)


def test_a_dead_cell_is_told_and_loses_nothing(now: dict[str, str]) -> None:
    assert "WorkerDied: The call's process ended without an answer: SIGSEGV" in _with(now, "ctypes.string_at(0)")
    assert now["images.shape, list(histories)"] == "((512, 28, 28), [16, 32, 64, 128, 256])"


def test_a_cell_that_hangs_is_ended(now: dict[str, str]) -> None:
    assert "The call took longer than 2 s, and was ended." in _with(now, "while True:\n    pass")


def test_a_detached_cell_prints_below_itself_and_brings_its_names(now: dict[str, str]) -> None:
    assert re.search(r"Epoch 1\nEpoch 2\nEpoch 3\n", _with(now, "--detach"))
    assert re.search(r"^ +\d+  running .* 2\.2 GiB of GPU 0 ", now["%tf_gpu jobs"], re.MULTILINE)
    assert now["job.result()"] == "'trained'"
    assert now["type(weights), weights.shape"] == "(numpy.ndarray, (1024, 1024))"
    assert re.search(r"^ +\d+  done ", now["%tf_gpu jobs #2"], re.MULTILINE)


def test_only_what_is_to_fail_is_tagged_so(now: dict[str, str], committed: Any) -> None:
    raised = re.compile(r"^\w+(Error|Died|Out): ", re.MULTILINE)
    failed = [source for source, text in now.items() if raised.search(text)]

    assert failed == reading.tagged(committed)


def test_the_committed_outputs_are_todays(now: dict[str, str], committed: Any) -> None:
    """`scripts/notebooks` brings them up to date."""
    assert reading.words(reading.shown(committed)) == reading.words(now)


def test_nothing_of_the_machine_that_ran_it_is_committed() -> None:
    assert reading.places(ISOLATION) == []


def test_four_run_at_once_also_where_another_notebook_has_much_of_a_gpu(committed: Any, tmp_path: Path) -> None:
    (calls,) = (cell.source for cell in committed.cells if "def train_briefly" in cell.source)
    (four,) = (cell.source for cell in committed.cells if "executor.map" in cell.source)
    with Machine.create("2x16GiB") as machine, notebook(machine, tmp_path) as one:
        machine.add_neighbour("7GiB@0")
        ran = one.run(f"import os\n{calls}\n{four}\nprint(first + 3 > max(begin for _, begin, _, _ in runs))")

    assert ran.stream().endswith("\nTrue\n"), ran.text
