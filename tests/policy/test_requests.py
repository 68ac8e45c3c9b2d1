"""A policy is a file and a line: `half` is in no file of the house, and each stage knows it once a table lists it."""

from __future__ import annotations

import pytest

from tests.policy import half
from tests.policy.half import Half
from tests.policy.test_plan import check, gpu, kernel, planned, snapshot
from tests.sizes import GIB, MIB
from tfgpu_magic.claims.allocation import asked, lowered, settle
from tfgpu_magic.errors import PolicyError, Refused
from tfgpu_magic.policy import requests, script
from tfgpu_magic.policy.decide import decide
from tfgpu_magic.policy.parser import parse, usage
from tfgpu_magic.policy.policy import Memory

SPARE = (8 * GIB - 256 * MIB - 1536 * MIB) // 2
"""Half of what is free on an empty GPU of 8 GiB, beside CUDA's context and what TensorFlow leaves to its libraries."""

EMPTY = gpu(0, 8, capability=(8, 0))
TWO = (EMPTY, gpu(1, 8, capability=(8, 0)))


@pytest.fixture(autouse=True)
def _listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "REQUESTS", (*requests.REQUESTS, half))


@pytest.mark.parametrize("text", ["half", "half --gpu 0", "half --grow", "visible 0; half --gpu 0 --grow"])
def test_it_is_read_and_reads_back(text: str) -> None:
    assert str(parse(text)) == text


def test_its_mistakes_are_told_like_those_of_others() -> None:
    with pytest.raises(PolicyError, match=r"'half' has no flag '--grwo'. Did you mean '--grow'. Write `%tf_gpu half`"):
        parse("half --grwo")
    with pytest.raises(PolicyError, match="Did you mean 'half'"):
        parse("halv")
    with pytest.raises(PolicyError, match="`growth` would undo `half`"):
        parse("half; growth")
    assert "half of what is free" in usage([row.WORD for row in requests.REQUESTS])


def test_it_is_planned_gpu_by_gpu() -> None:
    check(planned("half --gpu 1", *TWO), {"limits": [(), (SPARE,)]})


def test_code_and_env_say_it() -> None:
    plan = planned("half --grow", EMPTY)

    assert f"memory_limit={SPARE // MIB})" in script.python(plan)
    assert "TF_FORCE_GPU_ALLOW_GROWTH=true" in script.shell(plan)
    assert "TFGPU_POLICY='half --grow'" in script.shell(plan)


@pytest.mark.parametrize(
    ("earlier", "later", "held"),
    [
        ("half", "growth", "growth"),
        ("half", "limit 1GiB", "limit 1GiB"),
        ("half", "limit 0=1GiB", "half; limit 0=1GiB"),
        ("half --gpu 0", "limit 0=1GiB", "limit 0=1GiB"),
        ("limit 0=1GiB 1=1GiB", "half --gpu 1", "limit 0=1GiB; half --gpu 1"),
        ("growth; visible 0", "half", "visible 0; half"),
        ("half", "default", ""),
    ],
)
def test_later_words_replace_it_and_it_replaces_earlier_ones(earlier: str, later: str, held: str) -> None:
    assert str(parse(earlier).then(parse(later))) == held


def test_it_must_agree_on_growth_with_others() -> None:
    with pytest.raises(Refused) as caught:
        planned("half; limit 0=1GiB --grow", *TWO)

    assert "half --grow; limit 0=1GiB --grow" in [way.words for way in caught.value.tries]


def test_an_isolated_call_has_its_gpu_to_itself_and_is_told_it() -> None:
    (device,) = planned("half --grow", EMPTY).devices

    leased = lowered(asked(device))

    assert leased.limits == ()  # the whole GPU
    assert str(settle(parse("half --grow"), [leased])) == "visible 0; half --grow"


def test_where_it_cannot_be_had_it_is_refused_or_falls_to_what_can() -> None:
    full = gpu(0, 0.3, capability=(8, 0))

    with pytest.raises(Refused, match="of the 307 MiB that are free is too little"):
        planned("half", full)
    plan = decide(parse("half"), snapshot(full), kernel(full), strict=False)
    why = plan.unmet
    assert str(plan.asked) == "growth"
    assert "too little" in str(why)


def test_a_request_that_forgets_a_stage_cannot_be_made() -> None:
    forgetful = type("Forgetful", (Memory,), {"__str__": lambda _: "forgetful"})

    with pytest.raises(TypeError, match="abstract"):
        forgetful()
    assert Half()
