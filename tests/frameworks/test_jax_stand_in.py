"""JAX's stage, figures and variables, also where JAX is not installed: `test_jax.py` has the real one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from tests.figures import jax
from tfgpu_magic.frameworks import cuda, registry
from tfgpu_magic.frameworks.jax.framework import Jax
from tfgpu_magic.frameworks.jax.settings import (
    ALLOCATOR,
    FORMER_FRACTION,
    FRACTION,
    PREALLOCATE,
    own_fraction,
    remarks,
    uncapped_allocator,
    variables,
)
from tfgpu_magic.ground.report import Figure
from tfgpu_magic.policy.process_state import Stage

BFC = {"bytes_in_use": 1, "peak_bytes_in_use": 1, "pool_bytes": 4, "bytes_limit": 8, "num_allocs": 1}
POOLLESS = {"bytes_in_use": 3, "peak_bytes_in_use": 5}


def with_gpus(*stats: dict[str, int] | None) -> dict[str, Any]:
    """Return JAX's backends where its GPUs tell these statistics; the last GPU is listed first."""
    devices = [SimpleNamespace(local_hardware_id=n, memory_stats=lambda s=s: s) for n, s in enumerate(stats)]
    return {"_backends": {"cpu": None, "cuda": SimpleNamespace(local_devices=lambda: devices[::-1])}}


@pytest.mark.parametrize(
    ("bridge", "stage"),
    [
        ({}, Stage.ABSENT),  # it is being imported
        ({"_backends": {}}, Stage.IMPORTED),
        ({"_backends": {}, "_plugins_registered": True}, Stage.LISTED),
        ({"_backends": {"cpu": None}, "_plugins_registered": True}, Stage.IMPORTED),
        (with_gpus(), Stage.READY),
    ],
)
def test_its_stage(bridge: dict[str, Any], stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", SimpleNamespace(**bridge))

    assert Jax().stage() is stage


WITHOUT_A_POOL = (
    Figure(framework="JAX", what="in use", size=3, used=True, taken=True),
    Figure(framework="JAX", what="peak", size=5, peak=True),
)


@pytest.mark.parametrize(
    ("bridge", "figures"),
    [
        (with_gpus({"bytes_limit": 8}, BFC), {"GPU-2": jax(1, 4, 8)}),  # nothing is taken of the first
        (with_gpus(None, None), {}),  # its allocator tells nothing
        (with_gpus(POOLLESS), {"GPU-1": WITHOUT_A_POOL}),  # no limit is not zero
    ],
)
def test_its_figures_are_those_of_gpus_that_it_has_taken_memory_of(
    bridge: dict[str, Any], figures: dict[str, tuple[Figure, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "visible_gpus", lambda: ("GPU-1", "GPU-2"))
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", SimpleNamespace(**bridge))

    assert registry.figures() == figures


ONE = {"GPU-1": Decimal("0.25")}


@pytest.mark.parametrize(
    ("fractions", "grows", "environment", "found"),
    [
        ({}, False, {FRACTION: "0.5", PREALLOCATE: "false"}, {}),
        ({}, True, {FRACTION: "0.5"}, {PREALLOCATE: "false"}),
        (ONE, False, {}, {FRACTION: "0.25"}),
        ({**ONE, "GPU-2": Decimal("0.5")}, False, {}, {FRACTION: "0.25"}),  # the smallest holds
        (ONE, False, {FRACTION: "0.5", FORMER_FRACTION: "0.5"}, {FRACTION: "0.25", FORMER_FRACTION: None}),
        (ONE, True, {}, {FRACTION: "0.25", PREALLOCATE: "false"}),
        (ONE, False, {PREALLOCATE: "0"}, {FRACTION: "0.25", PREALLOCATE: None}),
        (ONE, False, {PREALLOCATE: "true", ALLOCATOR: "bfc"}, {FRACTION: "0.25"}),
    ],
)
def test_only_what_was_asked_for_is_set(
    fractions: Mapping[str, Decimal], grows: bool, environment: Mapping[str, str], found: Mapping[str, str | None]
) -> None:
    assert variables(fractions, grows, environment) == found


@pytest.mark.parametrize(
    ("environment", "fraction"),
    [
        ({}, "0.75"),
        ({FRACTION: "0"}, "0.75"),  # which is no setting
        ({FRACTION: "all"}, "1"),  # which limits nothing
        ({FRACTION: "0.05"}, "0.05"),
        ({FRACTION: "0.3", FORMER_FRACTION: "0.2"}, "0.2"),
    ],
)
def test_its_own_fraction_is_the_environments_or_its_default(environment: dict[str, str], fraction: str) -> None:
    assert own_fraction(environment) == Decimal(fraction)


def test_growth_without_a_limit_is_capped_by_jax_itself_and_that_is_said() -> None:
    (said,) = remarks({}, True, {})

    assert "75% of a GPU at most" in str(said)
    assert remarks({}, True, {FRACTION: ".9"}) == remarks(ONE, True, {}) == remarks({}, False, {}) == []


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, None),
        ({ALLOCATOR: "BFC"}, None),
        ({ALLOCATOR: "default"}, None),
        ({ALLOCATOR: "platform"}, "platform"),
        ({ALLOCATOR: "vmm"}, "vmm"),
    ],
)
def test_an_allocator_that_no_fraction_limits_is_named(environment: dict[str, str], found: str | None) -> None:
    assert uncapped_allocator(environment) == found
