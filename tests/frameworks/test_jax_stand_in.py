"""JAX's stage, figures and variables, also where JAX is not installed: `test_jax.py` has the real one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

import tfgpu_magic
from tests.figures import jax
from tfgpu_magic.frameworks import registry
from tfgpu_magic.frameworks.jax.framework import Jax
from tfgpu_magic.frameworks.jax.settings import (
    ALLOCATOR,
    FORMER_FRACTION,
    FRACTION,
    PREALLOCATE,
    remarks,
    uncapped,
    variables,
)
from tfgpu_magic.model.report import Figure
from tfgpu_magic.policy.process_state import Stage

BFC = {"bytes_in_use": 1, "peak_bytes_in_use": 1, "pool_bytes": 4, "bytes_limit": 8, "num_allocs": 1}


def device(number: int, stats: dict[str, int] | None) -> SimpleNamespace:
    return SimpleNamespace(local_hardware_id=number, memory_stats=lambda: stats)


@pytest.fixture
def _bridge(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr("tfgpu_magic.frameworks.cuda.shown", lambda: ("GPU-1", "GPU-2"))
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", SimpleNamespace(**request.param))


def with_gpus(*devices: SimpleNamespace) -> dict[str, Any]:
    return {"_backends": {"cpu": None, "cuda": SimpleNamespace(local_devices=lambda: devices)}}


@pytest.mark.parametrize(
    ("_bridge", "stage"),
    [
        ({}, Stage.ABSENT),  # it is being imported
        ({"_backends": {}}, Stage.IMPORTED),
        ({"_backends": {}, "_plugins_registered": True}, Stage.LISTED),
        ({"_backends": {"cpu": None}, "_plugins_registered": True}, Stage.IMPORTED),
        (with_gpus(), Stage.READY),
    ],
    indirect=["_bridge"],
)
@pytest.mark.usefixtures("_bridge")
def test_its_stage(stage: Stage) -> None:
    assert Jax().stage() is stage


@pytest.mark.parametrize("_bridge", [with_gpus(device(1, BFC), device(0, {"bytes_limit": 8}))], indirect=True)
@pytest.mark.usefixtures("_bridge")
def test_a_gpu_that_it_has_taken_nothing_of_has_no_figures() -> None:
    assert registry.figures() == {"GPU-2": jax(1, 4, 8)}


@pytest.mark.parametrize("_bridge", [with_gpus(device(0, BFC))], indirect=True)
@pytest.mark.usefixtures("_bridge")
def test_that_it_cannot_give_back_is_said() -> None:
    with pytest.raises(tfgpu_magic.Refused, match="JAX keeps the GPU memory that was taken until this"):
        tfgpu_magic.give_back()


@pytest.mark.parametrize("_bridge", [with_gpus(device(0, None), device(1, None))], indirect=True)
@pytest.mark.usefixtures("_bridge")
def test_a_backend_that_tells_nothing_has_no_figures() -> None:
    assert Jax().figures() == {}


@pytest.mark.parametrize("_bridge", [with_gpus(device(0, {"bytes_in_use": 3, "peak_bytes_in_use": 5}))], indirect=True)
@pytest.mark.usefixtures("_bridge")
def test_without_a_pool_what_is_in_use_is_what_it_holds_and_no_limit_is_not_zero() -> None:
    in_use = Figure(framework="JAX", what="in use", size=3, used=True, taken=True)

    assert Jax().figures() == {"GPU-1": (in_use, Figure(framework="JAX", what="peak", size=5, peak=True))}


# --- a policy's variables: one fraction, under one name, and nothing else lost ---

ONE = {"GPU-1": Decimal("0.25")}


def test_of_two_names_one_is_left() -> None:
    both = {FRACTION: "0.5", FORMER_FRACTION: "0.5"}

    left = both | variables(ONE, False, both)

    assert {key: value for key, value in left.items() if value is not None} == {FRACTION: "0.25"}


@pytest.mark.parametrize(
    ("fractions", "grows", "environment", "found"),
    [
        ({}, False, {FRACTION: "0.5", PREALLOCATE: "false"}, {}),
        ({}, True, {FRACTION: "0.5"}, {PREALLOCATE: "false"}),
        (ONE, False, {}, {FRACTION: "0.25"}),
        (ONE, True, {}, {FRACTION: "0.25", PREALLOCATE: "false"}),
        (ONE, False, {PREALLOCATE: "0"}, {FRACTION: "0.25", PREALLOCATE: None}),
        (ONE, False, {PREALLOCATE: "true", ALLOCATOR: "bfc"}, {FRACTION: "0.25"}),
    ],
)
def test_only_what_was_asked_for_is_set(
    fractions: Mapping[str, Decimal], grows: bool, environment: Mapping[str, str], found: Mapping[str, str | None]
) -> None:
    assert variables(fractions, grows, environment) == found


def test_of_several_fractions_the_smallest_holds() -> None:
    assert variables({**ONE, "GPU-2": Decimal("0.5")}, False, {}) == {FRACTION: "0.25"}


def test_growth_without_a_limit_is_capped_by_jax_itself_and_that_is_said() -> None:
    assert remarks({}, True, {}) == ["JAX grows to 75% of a GPU at most, its own default, where no limit is set."]
    assert remarks({}, True, {FRACTION: ".9"}) == remarks(ONE, True, {}) == remarks({}, False, {}) == []


@pytest.mark.parametrize(
    ("chosen", "found"), [(None, None), ("BFC", None), ("default", None), ("platform", "platform"), ("vmm", "vmm")]
)
def test_an_allocator_that_no_fraction_limits_is_named(chosen: str | None, found: str | None) -> None:
    assert uncapped({} if chosen is None else {ALLOCATOR: chosen}) == found
