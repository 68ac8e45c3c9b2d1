"""Which ways lead out of a lack of memory: only those that a trial shows to be open, the one that costs least first."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.insight.cases import case, gpu, pool, row, shortage
from tests.sizes import GIB, MIB
from tfgpu_magic.config import parser
from tfgpu_magic.insight.why.explanation import Explanation, Held
from tfgpu_magic.insight.why.ways import ways
from tfgpu_magic.monitor.rows import ProcessRow


@dataclass
class Fits:
    """A trial in which policies fit whose words are these; it notes what was tried."""

    words: Collection[str] = ()
    now_words: Collection[str] = ()
    gpus: int | None = None
    without: int | None = None
    tried: list[tuple[str, int]] = field(default_factory=list)

    def anew(self, words: str, need: int, *, without: ProcessRow | None = None) -> bool:
        parser.parse(words)
        self.tried.append((words, need))
        return words in self.words and (self.without is None) == (without is None)

    def now(self, words: str, need: int) -> bool:
        del need
        return words in self.now_words

    def beside(self, words: str, need: int) -> int | None:
        self.tried.append((f"isolate {words}", need))
        return self.gpus


def _kinds(found: Explanation, trial: Fits, **options: Any) -> list[tuple[str, str]]:
    return [(way.kind, way.words) for way in ways(found, trial, **options)]


def test_what_is_tried_has_headroom_and_less_of_it_where_that_does_not_fit() -> None:
    trial = Fits(words=["limit 2.8GiB"])

    assert _kinds(case(), trial) == [("restart", "limit 2.8GiB"), ("smaller", "")]
    assert trial.tried[-2:] == [("limit 3.8GiB", 3891 * MIB), ("limit 2.8GiB", 2867 * MIB)]  # 0.5 + 2, and a part


def test_what_loses_nothing_comes_before_a_restart() -> None:
    trial = Fits(words=["limit 3.8GiB"], gpus=0)

    assert _kinds(case(), trial) == [("isolate", "growth"), ("restart", "limit 3.8GiB"), ("smaller", "")]


def test_what_ipython_keeps_is_let_go_first_if_that_is_enough() -> None:
    kept = (Held(name="Out[3]", what="tensor", size=GIB // 2, kept=True), Held(name="x", what="tensor", size=GIB))
    short = case(shortage=shortage(0.9), biggest=kept)

    assert _kinds(short, Fits(), frees=True)[0] == ("free", "free")
    assert _kinds(short, Fits()) == [("smaller", "")]  # there is no such word
    assert _kinds(case(shortage=shortage(1.1), biggest=kept), Fits(), frees=True) == [("smaller", "")]


def test_a_cap_that_can_be_raised_at_once_is() -> None:
    capped = case(shortage=shortage(2, framework="PyTorch"))

    assert _kinds(capped, Fits(now_words=["limit 3.8GiB"]))[0] == ("now", "limit 3.8GiB")


def test_a_full_gpu_is_left_for_another_or_for_the_time_when_an_idle_notebook_is_shut_down() -> None:
    crowded = case(
        cause="gpu",
        pool=pool(1, 12, grows=True),
        gpu=gpu(free=1),
        processes=(row(6, "busy.ipynb", state="busy", pid=1), row(3, pid=2), row(9, "maria", who="other", pid=3)),
    )
    found = ways(crowded, Fits(words=["pick --need 4.5GiB; growth"]))

    assert [(way.kind, way.words) for way in found[:2]] == [("restart", "pick --need 4.5GiB; growth"), ("shut", "")]
    assert [way.row.pid for way in found if way.row is not None] == [2]


def test_a_start_without_room_is_tried_on_another_gpu_and_then_without_a_neighbour() -> None:
    failed = case(cause="start", pool=None, shortage=shortage(None, kind="driver"), processes=(row(6),))

    assert _kinds(failed, Fits(words=["pick"])) == [("restart", "pick")]
    assert _kinds(failed, Fits(words=["pick"], without=7)) == [("shut", "pick")]
    assert _kinds(failed, Fits()) == []


def test_a_part_of_a_split_is_made_larger() -> None:
    trial = Fits()
    _kinds(case(parts=(2 * GIB, GIB), pool=pool(0.4, 1, capped=True, name="GPU:1")), trial)

    assert "split 2GiB 3.6GiB" in [words for words, _ in trial.tried]


def test_a_library_without_room_wants_a_smaller_pool() -> None:
    full = case(cause="library", shortage=shortage(None, kind="library"), pool=pool(1, 14))

    assert _kinds(full, Fits(words=["growth"]))[0] == ("restart", "growth")


def test_more_than_the_gpu_has_needs_another_gpu() -> None:
    trial = Fits(gpus=1)

    assert _kinds(case(cause="size", shortage=shortage(20)), trial) == [("smaller", "")]
    assert [words for words, _ in trial.tried if not words.startswith("pick ")] == []


def test_a_call_is_not_helped_by_a_restart() -> None:
    assert _kinds(case(call=True), Fits(words=["limit 3.8GiB"], gpus=1)) == [("isolate", "growth"), ("smaller", "")]


@pytest.mark.parametrize(
    ("facts", "shape", "size"),
    [
        ({"shortage": shortage(2, shape=(1000, 2, 2**18), dtype="float")}, (250, 2, 2**18), GIB // 2),
        ({"shortage": shortage(2)}, None, GIB // 2),
        ({"pool": pool(1, 1)}, None, None),
        ({"cause": "pieces"}, None, None),
    ],
)
def test_how_much_smaller_it_must_be_is_told_where_that_is_known(
    facts: dict[str, Any], shape: tuple[int, ...] | None, size: int | None
) -> None:
    *_, smaller = ways(case(**facts), Fits())

    assert (smaller.kind, smaller.shape, smaller.size) == ("smaller", shape, size)
