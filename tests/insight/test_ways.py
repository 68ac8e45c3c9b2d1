"""Which ways lead out of a lack of memory: only those that a trial shows to be open, the one that costs least first."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.insight.cases import case, gpu, holding, pool, row, shortage
from tests.rows import changed
from tests.sizes import GIB, MIB
from tfgpu_magic.ground.message import IPYTHON, Line, msg
from tfgpu_magic.ground.rows import ProcessRow
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.insight.objects.names import Name, NamedMemory
from tfgpu_magic.insight.why.explanation import Explanation, Remedy
from tfgpu_magic.insight.why.remedies import Trial, is_enough, remedies, shut, smaller
from tfgpu_magic.policy import parser


@dataclass
class Fits(Trial):
    """A trial in which policies fit whose words are these; it notes what was tried."""

    words: Collection[str] = ()
    isolated: bool = False
    without: int | None = None
    later: Collection[str] = ()
    tried: list[tuple[str, int]] = field(default_factory=list)

    def anew(self, words: str, need: int, *, without: ProcessRow | None = None) -> bool:
        parser.parse(words)
        self.tried.append((words, need))
        return words in self.words and (self.without is None) == (without is None)

    def beside(self, words: str, need: int) -> bool:
        self.tried.append((f"isolate {words}", need))
        return self.isolated and words == "growth"

    def alone(self, words: str, need: int) -> bool:
        del need
        return words in self.later


def _kinds(found: Explanation, trial: Fits) -> list[tuple[str, str]]:
    return [(way.kind, way.words) for way in remedies(found, trial)]


def test_what_is_tried_has_headroom_and_less_of_it_where_that_does_not_fit() -> None:
    trial = Fits(words=["limit 2.8GiB"])

    assert _kinds(case(), trial) == [("restart", "limit 2.8GiB"), ("smaller", "")]
    assert trial.tried[-2:] == [("limit 3.8GiB", 3891 * MIB), ("limit 2.8GiB", 2867 * MIB)]  # 0.5 + 2, and a part


def test_a_limit_that_would_be_warned_of_is_not_open() -> None:
    empty = Gpu(index=0, uuid="GPU-0", total=16 * GIB, free=16 * GIB, capability=(8, 0))
    trial = Trial(Snapshot(time=1.0, gpus=(empty,)), "TensorFlow", "GPU-0")

    assert trial.anew("limit 14GiB", 14 * GIB)
    assert trial.anew("limit 15GiB --grow", 15 * GIB)
    assert not trial.anew("limit 15GiB", 15 * GIB)


def test_what_loses_nothing_comes_before_a_restart() -> None:
    trial = Fits(words=["limit 3.8GiB"], isolated=True)

    assert _kinds(case(), trial) == [("isolate", "growth"), ("restart", "limit 3.8GiB"), ("smaller", "")]


OUT = holding("Out[3]", GIB // 2, root="result")
LARGE = holding("Out[3]", GIB, root="result")


@pytest.mark.parametrize(
    ("held", "facts", "first"),
    [
        ([OUT], {}, "free"),
        ([holding("", GIB // 2, root="result")], {}, "free"),  # of a display hook
        ([OUT], {"shortage": shortage(0.5), "pool": pool(1, capped=True)}, "free"),  # all that is missing, and no more
        ([OUT], {"cell": 3}, "smaller"),  # which makes it again
        ([OUT], {"shortage": shortage(1.1)}, "smaller"),  # that is not enough
        ([OUT], {"shortage": shortage(None)}, "free"),  # the larger part of the pool
        ([holding("Out[3]", GIB // 8, root="result")], {"shortage": shortage(None)}, "smaller"),
        ([holding("x", GIB)], {}, "smaller"),
        ([holding("Out[3]", GIB, root="result", others=(Name(("x",), root="name"),))], {}, "smaller"),
        ([holding("x", GIB, within=("in train()",), root="error")], {}, "smaller"),  # made again, too
        ([holding("Out[3]", GIB, root="result", device="GPU:1")], {}, "smaller"),
        ([holding("Out[3]", GIB, root="result", framework="JAX")], {}, "smaller"),
        ([OUT, OUT], {"cause": "gpu", "pool": pool(2, 12, grows=True)}, "smaller"),  # in two pieces
        ([LARGE], {"cause": "gpu", "pool": pool(2, 12, grows=True)}, "free"),
        ([LARGE], {"cause": "pieces", "pool": pool(2, 12)}, "free"),
    ],
)
def test_what_only_ipython_keeps_is_let_go_first_if_that_is_enough(
    held: list[NamedMemory], facts: dict[str, Any], first: str
) -> None:
    short = case(**({"shortage": shortage(0.9), "biggest": tuple(held)} | facts))

    assert remedies(short, Fits())[0].kind == first


def test_a_full_gpu_is_left_for_another_or_for_the_time_when_an_idle_notebook_is_shut_down() -> None:
    crowded = case(
        cause="gpu",
        pool=pool(1, 12, grows=True),
        gpu=gpu(free=1),
        processes=(row(6, "busy.ipynb", state="busy", pid=1), row(3, pid=2), row(9, "maria", who="other", pid=3)),
    )
    found = remedies(crowded, Fits(words=["pick --need 4.5GiB; growth"]))

    assert [(way.kind, way.words) for way in found[:2]] == [("restart", "pick --need 4.5GiB; growth"), ("shut", "")]
    assert found[1] == shut(crowded, row(3, pid=2))


def test_nobody_is_shut_down_for_a_restart_that_is_open_anyhow() -> None:
    assert "shut" not in dict(_kinds(case(processes=(row(6),)), Fits(words=["limit 3.8GiB"])))
    assert "shut" in dict(_kinds(case(processes=(row(6),)), Fits(words=["limit 3.8GiB"], without=7)))


def test_a_start_without_room_is_tried_on_another_gpu_and_then_without_a_neighbour() -> None:
    failed = case(cause="start", pool=None, shortage=shortage(None, kind="driver"), processes=(row(6),))

    assert _kinds(failed, Fits(words=["pick"])) == [("restart", "pick")]
    assert _kinds(failed, Fits(words=["pick"], without=7)) == [("shut", "pick")]
    assert _kinds(failed, Fits()) == []


def test_a_part_of_a_split_is_made_larger() -> None:
    trial = Fits()
    _kinds(case(parts=(GIB, GIB), part=1, pool=pool(0.4, 1, capped=True, name="GPU:1")), trial)

    assert "split 1GiB 3.6GiB" in [words for words, _ in trial.tried]


def test_growth_that_gives_back_stays_so() -> None:
    full = case(cause="gpu", pool=pool(1, None, grows=True, releases=True))

    assert _kinds(full, Fits(words=["growth --release"]))[0] == ("restart", "growth --release")


@pytest.mark.parametrize(("capped", "words"), [(False, "growth --release"), (True, "limit 11.3GiB")])
def test_memory_in_pieces_is_left_to_cudas_pools_or_has_room_for_the_same_peak(capped: bool, words: str) -> None:
    pieces = case(cause="pieces", shortage=shortage(1), pool=pool(1, 8, peak=6.5, reached=GIB, capped=capped))
    trial = Fits(words=[words])

    assert _kinds(pieces, trial)[0] == ("restart", words)
    assert (words, 11571 * MIB) in trial.tried  # 6.5 + 1, and half as much again


def test_a_library_without_room_wants_a_smaller_pool() -> None:
    full = case(cause="library", shortage=shortage(None, kind="library"), pool=pool(1, 14))

    assert _kinds(full, Fits(words=["growth"]))[0] == ("restart", "growth")


def test_more_than_the_gpu_has_needs_another_gpu() -> None:
    trial = Fits(isolated=True)

    assert _kinds(case(cause="size", shortage=shortage(20)), trial) == [("smaller", "")]
    assert [words for words, _ in trial.tried if not words.startswith("pick ")] == []


def test_a_call_is_not_helped_by_a_restart() -> None:
    assert _kinds(case(call=True), Fits(words=["limit 3.8GiB"], isolated=True)) == [
        ("isolate", "growth"),
        ("smaller", ""),
    ]


@pytest.mark.parametrize(
    ("facts", "size"),
    [
        ({"shortage": shortage(2, shape=(1000, 2, 2**18), dtype="float")}, GIB // 2),
        ({"pool": pool(1, 1)}, None),
        ({"cause": "pieces"}, None),
    ],
)
def test_how_much_smaller_it_must_be_is_told_where_that_is_known(facts: dict[str, Any], size: int | None) -> None:
    assert remedies(case(**facts), Fits())[-1] == smaller(size)


def test_an_isolated_call_is_nobodys_to_shut_down() -> None:
    call, other = changed(row(8, pid=8), call=True), row(4)
    found = case(cause="gpu", pool=pool(0.4, None, grows=True), gpu=gpu(1), processes=(call, other))

    assert [way for way in remedies(found, Fits()) if way.kind == "shut"] == [shut(found, other)]


LEAK = Remedy("free", ((Line("free history"), msg("")),), "free history", GIB)


@pytest.mark.parametrize(("level", "kinds"), [(1.9, ["free", "isolate"]), (2.1, ["isolate", "free"])])
def test_a_name_that_holds_most_of_the_pool_is_deleted_first(level: float, kinds: list[str]) -> None:
    found = case(pool=pool(level, 3, capped=True), deletion=(LEAK,))

    assert [kind for kind, _ in _kinds(found, Fits(isolated=True))][:2] == kinds


@pytest.mark.parametrize(
    ("facts", "freed", "enough"),
    [
        ({"pool": pool(2, 3, capped=True)}, 1, True),  # 2 - 1 + 2
        ({"pool": pool(2.1, 3, capped=True)}, 1, False),
        ({"pool": pool(1.9, 3, capped=True), "shortage": shortage(None)}, 1, True),  # the larger part
        ({"pool": pool(2.1, 3, capped=True), "shortage": shortage(None)}, 1, False),
        ({"cause": "gpu", "pool": pool(3, None, grows=True, framework="PyTorch")}, 2, True),
        ({"cause": "gpu", "pool": pool(5, None, grows=True, framework="PyTorch")}, 2, False),  # perhaps in pieces
        ({"cause": "pieces", "pool": pool(3, 6)}, 2, True),
        ({"cause": "library", "pool": pool(3, 6)}, 3, False),
        ({"cause": "start", "pool": None}, 3, False),
    ],
)
def test_what_is_freed_is_enough_for_what_was_asked_or_where_that_is_unknown_most_of_it(
    facts: dict[str, Any], freed: int, enough: bool
) -> None:
    assert is_enough(case(**facts), freed * GIB) == enough


CROWDED = {"cause": "gpu", "gpu": gpu(0.1), "pool": pool(1, None, grows=True), "processes": (row(12, who="other"),)}
LATER = "pick --need 4.5GiB; growth"


@pytest.mark.parametrize(
    ("facts", "later", "lines"),
    [
        (CROWDED, LATER, ["", f"%%tf_gpu isolate {LATER} --wait"]),
        (CROWDED | {"sendable": False}, LATER, ["", f"%tf_gpu {LATER} --restart --wait"]),
        (CROWDED | {"call": True}, LATER, [f"%%tf_gpu isolate {LATER} --wait"]),
        (CROWDED, "", []),  # it is not others who are in the way
        ({"cause": "pool"}, "pick --need 2.8GiB; limit 2.8GiB", ["%tf_gpu {later} --restart --wait"]),
        ({"cause": "start", "pool": None}, "pick", ["%tf_gpu pick --restart --wait"]),
        ({"cause": "start", "pool": None, "host": "session"}, "pick", ["%tf_gpu pick --wait"]),
        ({"cause": "start", "pool": None, "host": "program"}, "pick", ['tfgpu_magic.apply("pick", wait="30m")']),
    ],
)
def test_room_that_other_processes_have_is_waited_for(facts: dict[str, Any], later: str, lines: list[str]) -> None:
    found = [one for one in remedies(case(**facts), Fits(later=[later])) if one.kind == "other"]
    first = [line for one in found for line, _ in one.rows]

    written = [IPYTHON.line(one) if isinstance(one, Line) else str(one or "") for one in first]
    assert written == [line.format(later=later) for line in lines]


def test_all_that_holds_memory_is_a_line_to_click() -> None:
    found = remedies(case(biggest=(LARGE,), deletion=(LEAK,)), Fits(isolated=True, words=["limit 3.8GiB"]))

    assert [one.kind for one in found] == ["free", "isolate", "restart", "other"]
    assert found[-1].rows[0][0] == Line("tensors")
