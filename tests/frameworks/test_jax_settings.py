"""A policy's variables for JAX: one fraction, under the name that the installed jaxlib knows, and nothing else lost."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import pytest

from tfgpu_magic.frameworks.jax_settings import (
    ALLOCATOR,
    FORMER_FRACTION,
    FRACTION,
    PREALLOCATE,
    remarks,
    uncapped,
    variables,
)

ONE = {"GPU-1": Decimal("0.25")}


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ((0, 4, 31), FORMER_FRACTION),
        ((0, 4, 32), FRACTION),
        ((0, 10, 2), FRACTION),
        ((), FRACTION),
    ],
)
def test_the_fraction_goes_by_the_name_that_jaxlib_knows(version: tuple[int, ...], name: str) -> None:
    assert variables(ONE, False, {}, version) == {name: "0.25"}


@pytest.mark.parametrize(("version", "name"), [((0, 4, 31), FORMER_FRACTION), ((0, 10, 2), FRACTION)])
def test_of_two_names_one_is_left(version: tuple[int, ...], name: str) -> None:
    both = {FRACTION: "0.5", FORMER_FRACTION: "0.5"}

    left = both | variables(ONE, False, both, version)

    assert {key: value for key, value in left.items() if value is not None} == {name: "0.25"}


@pytest.mark.parametrize(
    ("fractions", "grows", "environment", "found"),
    [
        ({}, False, {FRACTION: "0.5", PREALLOCATE: "false"}, {}),
        ({}, True, {FRACTION: "0.5"}, {PREALLOCATE: "false"}),
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
