"""`growth --release` on GPUs that are only data: what it sets and says, and what it cannot be had together with."""

from __future__ import annotations

from typing import Any

import pytest

from tests.policy.test_plan import after, check, gpu, kernel, planned, snapshot
from tfgpu_magic.errors import Refused
from tfgpu_magic.policy import script
from tfgpu_magic.policy.ceiling import read
from tfgpu_magic.policy.decide import decide
from tfgpu_magic.policy.parser import parse
from tfgpu_magic.policy.plan import Plan
from tfgpu_magic.policy.process_state import ALLOCATOR, DEVICE_CAP, GROWTH, Stage

TWO = (gpu(0), gpu(1))
OLD = (gpu(0), gpu(1, capability=(5, 2)))
SET = {GROWTH: "true", ALLOCATOR: "cuda_malloc_async"}
NO_LIMIT = "keeps to no limit"
LOW = {"ceiling": read("limit 40%; limit 4GiB")}


def plan(words: str, **more: Any) -> Plan:
    return planned(words, *TWO, **more)


def test_it_sets_both_variables_and_the_price_is_said_beside_it() -> None:
    made = plan("growth --release")

    assert (made.environment, made.releases) == (SET, True)
    assert not made.needs_tensorflow  # it is in force at once, imported or not
    (note,) = map(str, made.notes)
    assert "goes back to the driver once no cell has run for a while (`c.TfGpuMagics.release_after`)" in note
    assert NO_LIMIT in note
    (note,) = map(str, plan("growth --release", host="program").notes)  # which has no cells
    assert note.startswith("What TensorFlow does not use goes back to the driver by `tfgpu_magic.give_back()`.")


@pytest.mark.parametrize(
    ("earlier", "later", "held", "releases"),
    [
        ("growth", "growth --release", "growth --release", True),
        ("growth --release", "growth", "growth", False),
        ("growth --release", "limit 1GiB", "limit 1GiB", False),
        ("limit 0=1GiB", "growth --release", "growth --release", True),
        ("growth --release", "visible 0", "growth --release; visible 0", True),
        ("growth --release", "split 2 --cpu", "growth --release; split 2 --cpu", True),
        ("growth --release", "default", "", False),
    ],
)
def test_later_words_replace_it_and_it_replaces_earlier_ones(
    earlier: str, later: str, held: str, releases: bool
) -> None:
    made = plan(later, **after(earlier, *TWO))

    check(made, {"asked": held, "releases": releases})
    assert (ALLOCATOR in made.environment) is releases


@pytest.mark.parametrize(
    ("words", "here", "why", "ways"),
    [
        (
            "growth --release; limit 0=1GiB",
            {},
            NO_LIMIT,
            ("default; growth --release", "default; limit 0=1GiB --grow"),
        ),
        ("growth --release; limit 0=1GiB --grow", {}, NO_LIMIT, ("default; growth --release", "--grow")),
        ("limit 0=1GiB --grow", after("growth --release", *TWO), NO_LIMIT, ("default; growth --release", "--grow")),
        ("split 1GiB 1GiB --gpu 0", after("growth --release", *TWO), NO_LIMIT, ("default; growth --release", "--grow")),
        ("visible 0; growth --release", LOW, "`limit 40%; limit 4GiB`. With --release", ("visible 0; growth",)),
        ("growth --release", {"gpus": OLD}, "GPU 1 is too old", ("growth", "visible 0; growth --release")),
    ],
)
def test_a_limit_beside_it_is_refused_with_the_reason_and_both_ways_out(
    words: str, here: dict[str, Any], why: str, ways: tuple[str, ...]
) -> None:
    state = {"gpus": TWO, **here}
    gpus = state.pop("gpus")
    with pytest.raises(Refused) as refused:
        planned(words, *gpus, **state)

    assert why in str(refused.value)
    for (found, *_), way in zip(refused.value.tries, ways, strict=True):
        assert found == way or (way == "--grow" and found.startswith("default; ") and found.endswith(way))
        assert planned(found, *gpus, **state).releases == found.endswith("--release")


@pytest.mark.parametrize("most", ["limit 40%", "limit 50%; limit 3GiB"])
def test_what_was_asked_before_the_ceiling_was_lowered_is_limited(most: str) -> None:
    gpus = (gpu(0), gpu(1, 3, total=4))
    here = kernel(*gpus, ceiling=read(most), **after("growth --release", *TWO))
    made = decide(parse("visible all"), snapshot(*gpus), here)

    assert not made.releases
    assert all(device.limits for device in made.devices)
    assert "--release" not in str(made.asked)


def test_growth_that_is_in_force_under_a_ceiling_is_not_this() -> None:
    with pytest.raises(Refused):
        plan("growth --release", stage=Stage.READY, **after("growth", *TWO, **LOW), **LOW)


@pytest.mark.parametrize(("ceiling", "held"), [(None, "growth --release"), ("limit 40%", "growth")])
def test_a_configured_one_falls_to_what_the_ceiling_allows_and_the_reason_is_said(
    ceiling: str | None, held: str
) -> None:
    most = None if ceiling is None else read(ceiling)
    made = decide(parse("growth --release"), snapshot(*TWO), kernel(*TWO, ceiling=most), strict=False)
    why = made.unmet

    assert str(made.asked) == held
    assert (NO_LIMIT in str(why)) is (ceiling is not None)


def test_variables_of_others_that_would_undo_it_are_overruled_and_that_is_said() -> None:
    theirs = {ALLOCATOR: "cuda_malloc", DEVICE_CAP: "512"}
    made = plan("growth --release", environment=theirs, outside=theirs)

    assert made.environment == SET
    said = "\n".join(map(str, made.notes))
    assert f"{ALLOCATOR} was 'cuda_malloc'" in said
    assert f"{DEVICE_CAP} is set, and does nothing with --release." in said


def test_a_limit_after_it_is_not_refused_for_the_variable_that_it_has_set() -> None:
    assert plan("limit 1GiB", environment=SET, **after("growth --release", *TWO)).devices[0].limits


def test_code_and_env_say_it() -> None:
    made = plan("growth --release")

    assert 'os.environ["TF_GPU_ALLOCATOR"] = "cuda_malloc_async"' in script.python(made)
    assert "def give_back():" in script.python(made)
    assert "def give_back():" not in script.python(plan("growth"))
    assert "export TF_GPU_ALLOCATOR=cuda_malloc_async" in script.shell(made)
