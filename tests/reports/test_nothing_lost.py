"""Reports of work that was lost, played in real IPythons whose cells have processes of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.isolate.notebook import LIGHT
from tests.magic.cells import NOT, Cells, Play, playing

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


ITERATED = """
import itertools, random
state = {'rng': random.Random(1)}; turns = itertools.count(); it = iter([1, 2])
"""
LARGE = """
import numpy as np
large = {'x': np.zeros(10**7)}; rows = np.zeros(10**5); tokens = list(range(10**7))
"""
SCENES = {
    "what a cell changed of the notebook's is named, and comes home with the flag": Cells(
        *(LIGHT, NOTEBOOK),
        (
            f"%%tf_gpu isolate\n{TRAIN}\nprint(len(fixed))",
            "Changed only there: best, log, scores. To bring back: -o best,log,scores",
            NOT + "fixed",
        ),
        ("print(scores, best, log.rows)", "[] {} ()\n"),
        (f"%%tf_gpu isolate -o scores,best,log\n{TRAIN}", NOT + "Changed only there"),
        ("print(scores, best, log.rows)", "[1.0, 0.1] {0.1: 1.0, 0.01: 0.1} (1.0, 0.1)\n"),
    ),
    "what a call changed is named once for its function": Cells(
        *(LIGHT, NOTEBOOK),
        ("for lr in (0.1, 0.01): train(lr, best)", "train changed only its own copies of best, scores: return what"),
        ("train(0.2, best=best)", NOT + "changed"),
        ("print(add(fixed), scores, best)", "[1, 2, 2] [] {}\n", NOT + "changed"),
    ),
    "random generators and iterators are seen wherever they are": Cells(
        *(LIGHT, ITERATED),
        ("%%tf_gpu isolate\nstate['rng'].random(); next(turns); x = next(it)", "Changed only there: it, state, turns."),
        ("%%tf_gpu isolate\nprint(state, turns, it)", NOT + "Changed"),
    ),
    "what grows is named, and of what is too large to compare nothing is said": Cells(
        *(LIGHT, LARGE),
        ("%%tf_gpu isolate\nlarge['y'] = 1", "Changed only there: large."),
        ("%%tf_gpu isolate\nrows[5] = 1; len(large)", "Changed only there: rows."),
        ("%%tf_gpu isolate\nlen(tokens)", NOT + "tokens"),
    ),
}


@pytest.fixture(scope="module")
def play() -> Iterator[Play]:
    with playing("1x8GiB") as (play, _):
        yield play


@pytest.mark.parametrize("cells", SCENES.values(), ids=SCENES)
def test_frameworks_13_no_change_is_lost_unsaid(play: Play, cells: Cells) -> None:
    cells.play(play)
