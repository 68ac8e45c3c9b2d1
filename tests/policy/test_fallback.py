"""The nearest safe plan that can be had, on GPUs that are only data."""

from __future__ import annotations

from typing import Any

import pytest

from tests.policy.test_plan import gpu, kernel, snapshot
from tfgpu_magic.errors import TooLate
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.policy.decide import decide, foreseen, waits
from tfgpu_magic.policy.parser import parse
from tfgpu_magic.policy.process_state import DEVICES, GROWTH, ProcessState, Stage

FULL = gpu(3, 0.1)
LOST = Gpu(index=1, uuid="GPU-1", name="T", lost=True, error="the GPU is lost. Others go on")
BLIND = Snapshot(time=0.0, error="NVML says nothing.")
ROOM = (gpu(0, 7.5), gpu(1, 7), gpu(2, 3), FULL)


def near(words: str, gpus: tuple[Gpu, ...] = ROOM, **more: object) -> str:
    plan = decide(parse(words), snapshot(*gpus), kernel(*gpus, **more), strict=False)
    why = plan.unmet
    assert bool(why) == (str(plan.asked) != words)
    assert plan.judged
    return str(plan.asked)


@pytest.mark.parametrize(
    ("words", "held"),
    [
        ("growth", "visible 0,1,2; growth"),
        ("limit 2GiB", "visible 0,1,2; limit 2GiB"),
        ("limit 40%", "visible 0,1,2; limit 40% --grow"),
        ("limit 40% --grow", "visible 0,1,2; limit 40% --grow"),
        ("limit 12GiB", "visible 0,1,2; growth"),
        ("limit 7=2GiB", "visible 0,1,2; growth"),
        ("limit 0=7GiB 1=1GiB", "visible 0,1,2; limit 0=7GiB; limit 1=1GiB"),
        ("limit 0=1GiB 3=1GiB", "visible 0,1,2; limit 0=1GiB"),
        ("limit 2=6GiB", "visible 0,1,2; limit 2=6GiB --grow"),
        ("split 4GiB 2GiB", "visible 0,1,2; split 4GiB 2GiB --grow"),
        ("split 2 --cpu; growth", "visible 0,1,2; growth; split 2 --cpu"),
        ("visible 2,3; limit 2GiB", "visible 2; limit 2GiB"),
        ("visible 3; growth", "visible none; growth"),
        ("visible 0,7; growth", "visible 0; growth"),
        ("visible 7; growth", "visible none; growth"),
        ("visible all; growth", "visible 0,1,2; growth"),
        ("pick; growth", "pick; growth"),
        ("pick 4; growth", "pick 3; growth"),
        ("pick --need 7.6GiB; limit 6GiB", "pick; limit 6GiB"),
        ("pick; limit 7.4GiB", "pick; limit 7.4GiB --grow"),
        ("visible 0,3", "visible 0"),
    ],
)
def test_what_cannot_be_had_falls_to_the_nearest_that_can(words: str, held: str) -> None:
    assert near(words) == held


@pytest.mark.parametrize("words", ["limit 7.4GiB", "visible 7; limit 1GiB", "growth; limit 0=1GiB"])
@pytest.mark.parametrize("more", [{}, {"stage": Stage.READY}])
def test_a_note_on_what_cannot_be_had_is_sentences_and_no_lines_to_say(words: str, more: dict[str, Stage]) -> None:
    waiting = waits(parse(words), None)
    (note, *_) = foreseen(waiting, snapshot(*ROOM), kernel(*ROOM, **more)).notes

    assert not note.tries


def test_a_lost_gpu_is_left_out_and_the_others_are_named_so_that_cuda_understands() -> None:
    gpus = (gpu(0), LOST, gpu(2))
    plan = decide(parse("limit 40%"), snapshot(*gpus), kernel(gpu(0), gpu(2)), strict=False)
    why = plan.unmet

    assert (str(plan.asked), why) == ("limit 40%", None)  # CUDA does not show it

    plan = decide(parse("visible 1,2; limit 40%"), snapshot(*gpus), kernel(gpu(0), gpu(2)), strict=False)

    why = plan.unmet

    assert str(plan.asked) == "visible 2; limit 40%"
    assert plan.environment[DEVICES] == "GPU-2"


@pytest.mark.parametrize("words", ["growth", "limit 2GiB", "pick; limit 2GiB", "split 2", "limit 0=1GiB 1=40%"])
@pytest.mark.parametrize("absent", [True, False])
def test_where_no_gpu_is_known_memory_grows(words: str, absent: bool) -> None:
    plan = decide(parse(words), BLIND._replace(absent=absent), ProcessState(), strict=False)
    why = plan.unmet

    assert plan.environment.get(GROWTH) == "true" or absent
    assert bool(why) == (not absent and words != "growth")  # a machine without GPUs is nothing to warn of


@pytest.mark.parametrize(
    ("here", "asked", "variables"),
    [
        ({}, "visible 2,3; growth", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", DEVICES: "2,3", GROWTH: "true"}),
        ({"frozen": True, "stage": Stage.LISTED}, "growth", {GROWTH: "true"}),  # CUDA can no longer be told
    ],
)
def test_where_no_gpu_is_known_those_that_the_policy_names_are_seen(
    here: dict[str, Any], asked: str, variables: dict[str, str]
) -> None:
    plan = decide(parse("visible 2,3; limit 4GiB"), BLIND, ProcessState(**here), strict=False)

    assert (str(plan.asked), plan.environment) == (asked, variables)


def test_gpus_that_a_scheduler_gave_are_kept_where_nobody_knows_which_they_are() -> None:
    unlike = (gpu(0), gpu(1, total=16))
    here = ProcessState(shown=None, outside={DEVICES: "1"}, environment={DEVICES: "1"})
    plan = decide(parse("pick; growth"), snapshot(*unlike), here, strict=False)
    why = plan.unmet

    assert DEVICES not in plan.environment
    assert plan.growth
    assert "CUDA did not say in time" in str(why)


@pytest.mark.parametrize("stage", [Stage.READY, Stage.POISONED])
def test_nothing_is_promised_of_a_process_in_which_it_is_too_late(stage: Stage) -> None:
    with pytest.raises(TooLate):
        decide(parse("growth"), snapshot(*ROOM), kernel(*ROOM, stage=stage), strict=False)


@pytest.mark.parametrize(
    ("words", "variables"),
    [("growth", {GROWTH: "true"}), ("pick; limit 40%", {GROWTH: "true"}), ("growth off", {}), ("pick", {})],
)
def test_until_it_is_judged_memory_grows_and_nothing_is_picked(words: str, variables: dict[str, str]) -> None:
    plan = waits(parse(words))

    assert plan.environment == variables
    assert plan.needs_tensorflow
    assert not plan.judged
