"""The tour does what its text says, and its committed outputs are what it shows now."""

from __future__ import annotations

import os
import re
import signal
import sys
from subprocess import PIPE, Popen
from typing import Any
from unittest import mock

import pytest

from scripts._notebooks import FOLDER, run
from tests.notebooks import reading

TOUR = FOLDER / "tour.ipynb"


@pytest.fixture(scope="module")
def now() -> dict[str, str]:
    """What the tour shows now; a cell that fails and is not tagged for it fails every test here."""
    return reading.shown(run(TOUR))


@pytest.fixture(scope="module")
def committed() -> Any:
    return reading.committed(TOUR)


def test_the_first_look_shows_every_gpu_and_both_neighbours(now: dict[str, str]) -> None:
    first = now["%tf_gpu"]

    assert len(re.findall(r"^ +\d +Simulated GPU 16GiB +GPU:\d ", first, re.MULTILINE)) == 4
    assert re.search(r"C +train\.ipynb +9\.0 GiB", first)
    assert re.search(r"C +maria +12\.0 GiB", first)


def test_without_a_word_tensorflow_takes_nearly_all(now: dict[str, str]) -> None:
    held = re.search(r"^ +0 .* (\d+\.\d) / 16 GiB", now["%tf_gpu #2"], re.MULTILINE)

    assert held
    assert float(held[1]) > 13


def test_the_third_of_three_times_forty_percent_is_refused(now: dict[str, str]) -> None:
    assert now['first = start("limit 40%")\nsecond = start("limit 40%")'].count("uses a GPU") == 2

    refusal = now["%tf_gpu limit 40%"]
    assert "UsageError: Not applied. GPU 0: 40% is 6.4 GiB" in refusal
    assert len(re.findall(r"^ +6\.\d GiB  ", refusal, re.MULTILINE)) == 2


def test_what_was_asked_before_a_refusal_still_waits(now: dict[str, str]) -> None:
    assert now["%tf_gpu plan"].startswith("`pick; limit 25%` takes effect when")


def test_the_limit_is_in_force_in_the_end(now: dict[str, str]) -> None:
    assert (
        "`pick; limit 40%` is in force from TensorFlow's first op on."
        in now["import tensorflow as tf\n\nimages = tf.zeros([64, 1024, 1024])"]
    )
    assert re.search(r"GPU:0 +6\.\d / 16 GiB .* limit 6\.4 GiB$", now["%tf_gpu #3"], re.MULTILINE)


def test_too_late_names_the_cell(now: dict[str, str]) -> None:
    said = now["%tf_gpu limit 2GiB"]

    assert re.search(r"since In \[\d+\] \(images = tf\.zeros", said)
    assert "%tf_gpu limit 2GiB --restart" in said


def test_a_split_gpu_has_two_replicas(now: dict[str, str]) -> None:
    assert any("2 replicas" in shown for source, shown in now.items() if "MirroredStrategy" in source)


def test_a_second_run_ends_the_processes_that_the_first_has_left(committed: Any) -> None:
    (setup,) = (cell.source for cell in committed.cells if "def start(" in cell.source)
    tour: dict[str, Any] = {}
    with mock.patch.dict(os.environ), Popen([sys.executable, "-c", "input()"], stdin=PIPE) as left:
        exec(setup, tour)
        tour["started"].append(left)
        exec(setup, tour)

        assert left.wait(60) == -signal.SIGKILL
    assert tour["started"] == []


def test_only_mistakes_are_tagged_as_mistakes(now: dict[str, str], committed: Any) -> None:
    tagged = reading.tagged(committed)

    assert tagged
    assert all("UsageError: " in now[source] for source in tagged)
    assert sum("UsageError: " in shown for shown in now.values()) == len(tagged)


def test_the_committed_outputs_are_todays(now: dict[str, str], committed: Any) -> None:
    """`scripts/notebooks` brings them up to date."""
    assert reading.words(reading.shown(committed)) == reading.words(now)


def test_nothing_of_the_machine_that_ran_it_is_committed() -> None:
    assert reading.places(TOUR) == []
