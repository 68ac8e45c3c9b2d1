"""Reports of work that was lost, played in real IPythons whose cells have processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.frameworks.cells_on_machine import stage
from tests.isolate.notebook import LIGHT
from tfgpu_magic.simgpu import Machine

Play = Callable[[Mapping[str, str], list[str]], list[str]]

TRAIN = """
for lr in (0.1, 0.01):
    score = lr * 10
    scores.append(score)
    best[lr] = score
    log.add(score)
    total = sum(scores)
"""

NOTEBOOK = """
scores, best, fixed = [], {}, [1, 2]
class Log:
    rows = ()
    def add(self, row): self.rows += (row,)
log = Log()
from tfgpu_magic import isolated
@isolated
def train(lr, best):
    scores.append(lr)
    best[lr] = lr
@isolated
def add(rows): return [*rows, len(fixed)]
"""


@pytest.fixture(scope="module")
def play() -> Iterator[Play]:
    with Machine.create("1x8GiB") as machine, stage(machine) as play:
        yield play


def cells(play: Play, *cells: str) -> list[str]:
    return play({}, ["%load_ext tfgpu_magic", LIGHT, *cells])[2:]


def test_frameworks_13_what_a_cell_changed_of_the_notebooks_is_named_and_comes_home_with_the_flag(play: Play) -> None:
    _, lost, seen, kept, home = cells(
        play,
        NOTEBOOK,
        f"%%tf_gpu isolate\n{TRAIN}\nprint(len(fixed))",
        "print(scores, best, log.rows)",
        f"%%tf_gpu isolate -o scores,best,log\n{TRAIN}",
        "print(scores, best, log.rows)",
    )

    assert "Changed only there: best, log, scores. To bring back: -o best,log,scores" in lost
    assert "fixed" not in lost
    assert seen == "[] {} ()\n"
    assert "Changed only there" not in kept
    assert home == "[1.0, 0.1] {0.1: 1.0, 0.01: 0.1} (1.0, 0.1)\n"


def test_frameworks_13_what_a_call_changed_is_named_once_for_its_function(play: Play) -> None:
    _, loop, named, returned = cells(
        play,
        NOTEBOOK,
        "for lr in (0.1, 0.01): train(lr, best)",
        "train(0.2, best=best)",
        "print(add(fixed), scores, best)",
    )

    assert loop == "train changed only its own copies of best, scores: return what is to come back from a call.\n"
    assert named == ""
    assert returned == "[1, 2, 2] [] {}\n"


def test_frameworks_13_random_generators_and_iterators_are_seen_wherever_they_are(play: Play) -> None:
    _, drawn, read = cells(
        play,
        "import itertools, random\nstate = {'rng': random.Random(1)}; turns = itertools.count(); it = iter([1, 2])",
        "%%tf_gpu isolate\nstate['rng'].random(); next(turns); x = next(it)",
        "%%tf_gpu isolate\nprint(state, turns, it)",
    )

    assert "Changed only there: it, state, turns." in drawn
    assert "Changed" not in read


def test_frameworks_13_what_grows_is_named_and_of_what_is_too_large_to_compare_nothing_is_said(play: Play) -> None:
    _, grown, written, words = cells(
        play,
        "import numpy as np\nlarge = {'x': np.zeros(10**7)}; rows = np.zeros(10**5); tokens = list(range(10**7))",
        "%%tf_gpu isolate\nlarge['y'] = 1",
        "%%tf_gpu isolate\nrows[5] = 1; len(large)",
        "%%tf_gpu isolate\nlen(tokens)",
    )

    assert "Changed only there: large." in grown
    assert "Changed only there: rows." in written
    assert "tokens" not in words
