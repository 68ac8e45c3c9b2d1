"""The notebook for Colab does what its text says, without a server, and its committed outputs are what it shows now."""

from __future__ import annotations

from typing import Any

import pytest

from scripts._notebooks import FOLDER, run
from tests.notebooks import reading

pytestmark = pytest.mark.nightly

COLAB = FOLDER / "colab.ipynb"


@pytest.fixture(scope="module")
def now() -> dict[str, str]:
    """What the notebook shows now; a cell that fails and is not tagged for it fails every test here."""
    return reading.shown(run(COLAB))


@pytest.fixture(scope="module")
def committed() -> Any:
    return reading.committed(COLAB)


def test_it_has_its_badge_and_installs_only_what_is_missing(committed: Any, now: dict[str, str]) -> None:
    # While the repository has no public address, the badge leads to Colab itself.
    badge = "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)"
    assert badge in committed.cells[0].source
    assert committed.cells[1].source.endswith("%pip install --quiet tfgpu-magic")
    assert now[committed.cells[1].source] == ""


def test_without_a_gpu_it_goes_on_on_the_cpu_and_says_so(now: dict[str, str]) -> None:
    assert "So TensorFlow uses the CPU." in now["%tf_gpu plan pick --need 100GiB --or-cpu"]
    assert "CPU" not in now["%tf_gpu pick --need 4GiB --or-cpu; limit 4GiB --grow"]


def test_the_limit_is_in_force_and_tensorflow_logs_errors_only(now: dict[str, str]) -> None:
    (imported,) = (shown for source, shown in now.items() if source.startswith("import tensorflow"))

    assert "`pick --need 4GiB --or-cpu; limit 4GiB --grow` is in force from TensorFlow's first op on." in imported
    assert "cpu_feature_guard" not in imported
    assert "limit 4 GiB" in now["%tf_gpu #2"]


def test_an_isolated_cell_gives_its_memory_back(now: dict[str, str]) -> None:
    (isolated,) = (shown for source, shown in now.items() if source.startswith("%%tf_gpu isolate"))

    assert "given back" in isolated
    assert now["len(losses)"] == "2"


def test_too_late_offers_the_restart(now: dict[str, str], committed: Any) -> None:
    assert "%tf_gpu limit 8GiB --restart" in now["%tf_gpu limit 8GiB"]
    assert reading.tagged(committed) == ["%tf_gpu limit 8GiB"]


def test_the_committed_outputs_are_todays(now: dict[str, str], committed: Any) -> None:
    """`scripts/notebooks` brings them up to date."""
    assert reading.words(reading.shown(committed)) == reading.words(now)


def test_nothing_of_the_machine_that_ran_it_is_committed() -> None:
    assert reading.places(COLAB) == []
