"""No word passes a ceiling, on GPUs that are only data: every policy, and every fallback of one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.policy.test_plan import after, check, gpu, kernel, planned, snapshot
from tests.sizes import GIB, MIB
from tfgpu_magic.errors import PolicyError, Refused
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.policy.ceiling import Ceiling, read, safe
from tfgpu_magic.policy.decide import decide
from tfgpu_magic.policy.parser import parse
from tfgpu_magic.policy.plan import Plan
from tfgpu_magic.policy.process_state import DEVICES, ProcessState, Stage

MOST = int(0.4 * 8 * 1024) * MIB
ROOM = (gpu(0, 7.5), gpu(1, 7))
BLIND = Snapshot(time=0.0, error="NVML says nothing.")


def plan(words: str, most: str = "limit 40%", gpus: tuple[Gpu, ...] = ROOM, **more: Any) -> Plan:
    return planned(words, *gpus, ceiling=read(most), **more)


@pytest.mark.parametrize(
    ("words", "takes"),
    [
        ("growth", ["limit 3.2 GiB, grows"] * 2),
        ("growth off", ["limit 3.2 GiB"] * 2),
        ("default", ["limit 3.2 GiB, grows"] * 2),
        ("visible all", ["limit 3.2 GiB, grows"] * 2),
        ("visible 1", ["limit 3.2 GiB, grows"]),
        ("pick", ["limit 3.2 GiB, grows"]),
        ("pick 2; growth", ["limit 3.2 GiB, grows"] * 2),
        ("split 2 --cpu", ["limit 3.2 GiB, grows"] * 2),
        ("limit 0=1GiB", ["limit 1 GiB", "limit 3.2 GiB"]),
        ("limit 0=1GiB --grow", ["limit 1 GiB, grows", "limit 3.2 GiB, grows"]),
        ("growth; limit 0=1GiB", ["limit 1 GiB", "limit 3.2 GiB"]),
        ("split 1GiB 1GiB --gpu 0", ["split 2 × 1 GiB", "limit 3.2 GiB"]),
    ],
)
def test_what_asks_for_no_limit_is_held_to_the_ceiling_and_that_is_said(words: str, takes: list[str]) -> None:
    made = plan(words)

    check(made, {"asked": words.replace("default", ""), "takes": takes})
    assert any("The ceiling here is `limit 40%`" in str(note) for note in made.notes)


@pytest.mark.parametrize("words", ["limit 1GiB", "limit 40%", "limit 3.1GiB --grow", "split 1GiB 2GiB", "visible none"])
def test_what_asks_for_less_stands(words: str) -> None:
    made = plan(words)

    assert str(made.asked) == words
    assert not any("ceiling" in str(note) for note in made.notes)


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        ("limit 41%", "limit 40%"),
        ("limit 100% --grow", "limit 40% --grow"),
        ("limit 6GiB", "limit 40%"),
        ("limit 0=1GiB 1=6GiB", "limit 0=1GiB; limit 1=40%"),
        ("split 2", "split 20% 20%"),
        ("split 2GiB 2GiB --grow", "split 20% 20% --grow"),
        ("split 3GiB 3GiB 1GiB --gpu 1", "split 13.33% 13.33% 13.33% --gpu 1"),
        ("visible 1; limit 90%", "visible 1; limit 40%"),
        ("default; pick; limit 90%", "default; pick; limit 40%"),
    ],
)
def test_what_asks_for_more_is_refused_with_the_most_that_is_allowed(words: str, allowed: str) -> None:
    with pytest.raises(Refused, match=r"and the ceiling is `limit 40%`, 3\.2 GiB here") as refused:
        plan(words)

    assert [way.words for way in refused.value.tries] == [allowed]
    assert plan(allowed)


def test_of_a_share_and_a_size_the_lower_holds_on_each_gpu() -> None:
    gpus = (gpu(0, 7.5), Gpu(index=1, uuid="GPU-1", name="T", total=4 * GIB, free=4 * GIB))
    made = plan("growth", "limit 50%; limit 3GiB", gpus)

    check(made, {"takes": ["limit 3 GiB, grows", "limit 2 GiB, grows"]})


BIG = Gpu(index=1, uuid="GPU-1", name="T", total=80 * GIB, free=70 * GIB)


@pytest.mark.parametrize(
    ("words", "most", "allowed"),
    [
        ("limit 6GiB", "limit 40%; limit 4GiB", "limit 0=40%; limit 1=4GiB"),
        ("limit 6GiB --grow", "limit 40%", "limit 0=40% --grow; limit 1=6GiB --grow"),
        ("limit 90%", "limit 40%", "limit 40%"),
    ],
)
def test_on_gpus_that_differ_each_has_the_most_that_is_allowed_and_never_more_than_asked(
    words: str, most: str, allowed: str
) -> None:
    gpus = (gpu(0, 7.5), BIG)
    with pytest.raises(Refused) as refused:
        plan(words, most, gpus)
    near = decide(parse(words), snapshot(*gpus), kernel(*gpus, ceiling=read(most)), strict=False)

    assert [way.words for way in refused.value.tries] == [allowed] == [str(near.asked)]
    assert str(plan(allowed, most, gpus).asked) == allowed


@pytest.mark.parametrize(
    ("earlier", "later", "takes"),
    [
        ("growth", "limit 0=1GiB", ["limit 1 GiB", "limit 3.2 GiB"]),
        ("limit 0=1GiB", "growth", ["limit 3.2 GiB, grows"] * 2),
    ],
)
def test_a_limit_that_is_taken_at_once_and_growth_may_follow_each_other(
    earlier: str, later: str, takes: list[str]
) -> None:
    check(plan(later, **after(earlier, *ROOM, ceiling=read("limit 40%"))), {"takes": takes})


def test_a_first_cell_can_be_run_again_when_it_is_in_force_and_no_other() -> None:
    here: dict[str, Any] = {"stage": Stage.READY, **after("growth", *ROOM, ceiling=read("limit 40%"))}

    assert plan("growth", **here).in_force
    with pytest.raises(Refused, match="already using"):
        plan("limit 1GiB", **here)


@pytest.mark.parametrize("words", ["growth", "visible all", "default"])
def test_without_figures_nothing_is_promised_but_no_gpu(words: str) -> None:
    here = ProcessState(ceiling=read("limit 40%"))
    with pytest.raises(Refused, match="cannot be held now") as refused:
        decide(parse(words), BLIND, here)

    assert [way.words for way in refused.value.tries] == ["visible none"]
    assert decide(parse("visible none"), BLIND, here).environment[DEVICES] == "-1"


def test_on_a_machine_without_gpus_it_is_no_matter() -> None:
    nothing = Snapshot(time=0.0, error="There is no NVIDIA driver here.", absent=True)

    assert decide(parse("growth"), nothing, ProcessState(ceiling=read("limit 40%"))).growth


@pytest.mark.parametrize(
    ("words", "in_force"),
    [
        ("growth", "growth"),
        ("limit 60%", "limit 40%"),
        ("limit 60% --grow", "limit 40% --grow"),
        ("limit 0=60% 1=1GiB", "limit 0=40%; limit 1=1GiB"),
        ("split 2", "split 20% 20%"),
        ("pick; limit 7GiB", "pick; limit 40%"),
        ("visible 7; growth", "visible none; growth"),
    ],
)
def test_a_configured_policy_falls_to_the_nearest_under_it(words: str, in_force: str) -> None:
    made = decide(parse(words), snapshot(*ROOM), kernel(*ROOM, ceiling=read("limit 40%")), strict=False)

    assert str(made.asked) == in_force
    assert all(0 < sum(device.limits) <= MOST for device in made.devices)


@pytest.mark.parametrize("frozen", [False, True])
def test_the_last_fallback_under_it_uses_no_gpu(frozen: bool) -> None:
    here = ProcessState(ceiling=read("limit 40%"), frozen=frozen)
    made = decide(parse("limit 20%"), BLIND, here, strict=False)
    why = made.unmet

    assert str(made.asked) == "visible none"
    assert made.environment == {DEVICES: "-1"}
    assert made.show == frozen
    assert why


@pytest.mark.parametrize(
    ("text", "amounts"),
    [
        ("limit 40%", "limit 40%"),
        ("limit 40% --grow", "limit 40%"),
        ("limit 60%; limit 40%; limit 8GiB; limit 4GiB", "limit 40%; limit 4GiB"),
        ("limit 40%; visible none", "visible none"),
    ],
)
def test_its_text_is_read_as_the_same_ceiling(text: str, amounts: str) -> None:
    assert str(read(text)) == amounts
    assert read(amounts) == read(text)


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("limti 40%", "limit 40%"),
        ("40%", "limit 40%"),
        ("visible 0,1; limit 40%", "limit 40%"),
        ("limit 0=1GiB 1=60%", "limit 60%; limit 1GiB"),
        ("limit 0=1GiB", "limit 1GiB"),
        ("limit fourty", "visible none"),
        *((text, "visible none") for text in ("growth", "split 2", "pick", "limit 0%")),
    ],
)
def test_what_is_no_ceiling_is_refused_and_never_falls_to_nothing(text: str, held: str) -> None:
    with pytest.raises(PolicyError):
        read(text)
    found = safe(text, "the configuration")

    assert str(found) == held
    assert f"`{text}`, from the configuration, was not understood" in str(found.flaws[0])
    assert f"`{held}` holds." in str(found.flaws[0])


def test_an_empty_text_is_no_ceiling() -> None:
    with pytest.raises(PolicyError):
        read("")


@pytest.mark.parametrize("words", ["growth", "visible 0", "limit 1GiB", "pick"])
def test_one_that_allows_no_gpu_refuses_all_words_for_one(words: str) -> None:
    with pytest.raises(Refused, match="No GPU may be used here") as refused:
        plan(words, "visible none")

    assert [way.words for way in refused.value.tries] == ["visible none"]
    assert str(plan("default", "visible none").asked) == "visible none"


@pytest.mark.parametrize("other", ["limit 60%", "limit 20%"])
def test_it_can_only_be_lowered(other: str) -> None:
    lower, nothing = min("limit 40%", other), Ceiling(())

    assert read("limit 40%").lower_of(read(other)) == read(lower)
    assert read(other).lower_of(nothing) == nothing.lower_of(read(other)) == nothing
