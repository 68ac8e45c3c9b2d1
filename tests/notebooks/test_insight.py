"""The notebook about memory does what its text says, and its committed outputs are what it shows now."""

from __future__ import annotations

import re
from typing import Any

import pytest

from scripts._notebooks import FOLDER, run
from tests.notebooks import reading

pytestmark = pytest.mark.nightly

INSIGHT = FOLDER / "insight.ipynb"


@pytest.fixture(scope="module")
def now() -> dict[str, str]:
    """What the notebook shows now; a cell that fails and is not tagged for it fails every test here."""
    return reading.shown(run(INSIGHT))


@pytest.fixture(scope="module")
def committed() -> Any:
    return reading.committed(INSIGHT)


def test_a_training_is_measured_with_its_optimizer(now: dict[str, str]) -> None:
    (said,) = (text for source, text in now.items() if source.startswith('f"{training.peak'))
    found = re.fullmatch(r"'(\d+) MiB at most, (\d+) MiB stayed'", said)

    assert found, said
    assert int(found[1]) > int(found[2]) >= 3 * 256  # the embedding, and both of Adam's moments


def test_the_line_to_ask_for_has_room_for_the_peak(now: dict[str, str]) -> None:
    assert re.search(r"%tf_gpu .*limit [\d.]+[GM]iB", now["%tf_gpu measure --fit"])


def test_cells_that_change_much_have_a_line(now: dict[str, str]) -> None:
    (taken,) = (text for source, text in now.items() if "images = tf.zeros" in source)

    assert "256 MiB" in taken
    assert "256 MiB" in now["%tf_gpu track"]


def test_everything_that_holds_memory_is_named(now: dict[str, str]) -> None:
    shown = now["%tf_gpu tensors"]

    for name in (
        r"model\.\S+",
        "images",
        r"versions\[0\]",
        "closed over by mean",
        r"Out\[\d+\]",
        "kept by the last error",
    ):
        assert re.search(name, shown), f"{name} is not in\n{shown}"


def test_letting_go_frees_results_the_error_and_the_named(now: dict[str, str]) -> None:
    freed = re.search(r"([\d.]+) (MiB|GiB) became free", now["%tf_gpu free versions"])

    assert freed
    # Two versions of 256 MiB, the result's 128 and the error's 64.
    assert float(freed[1]) * (1024 if freed[2] == "GiB" else 1) >= 512 + 128 + 64


def test_running_out_is_explained_and_the_first_advice_helps(now: dict[str, str]) -> None:
    shown = now["batch = tf.zeros([1024, 1024, 1024])"]
    (advised,) = (text for source, text in now.items() if source.startswith("%%tf_gpu isolate growth"))

    assert "ResourceExhaustedError" in shown
    assert "Out of GPU memory" in shown
    assert shown.index("%%tf_gpu isolate growth") < shown.index("%tf_gpu limit")
    assert "(1024, 1024, 1024): it fits." in advised


def test_only_what_is_to_fail_is_tagged_so(now: dict[str, str], committed: Any) -> None:
    failed = [source for source, text in now.items() if re.search(r"^\w+Error: ", text, re.MULTILINE)]

    assert failed == reading.tagged(committed)


def test_the_committed_outputs_are_todays(now: dict[str, str], committed: Any) -> None:
    """`scripts/notebooks` brings them up to date."""
    assert _words(reading.shown(committed)) == _words(now)


def _words(cells: dict[str, str]) -> dict[str, list[str]]:
    """Return the words; how much was in use at the failure is known where the machine had time to look meanwhile."""
    return reading.words({source: re.sub(" now, and [^,]*? at its peak", "", text) for source, text in cells.items()})


def test_nothing_of_the_machine_that_ran_it_is_committed() -> None:
    assert reading.places(INSIGHT) == []
