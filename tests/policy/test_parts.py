"""What the frameworks beside TensorFlow are told: a limit as a part of what CUDA counts as a GPU's memory."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from decimal import Decimal

import pytest

from tests.sizes import GIB
from tfgpu_magic.errors import Refused
from tfgpu_magic.frameworks.jax.framework import Jax
from tfgpu_magic.frameworks.registry import Framework
from tfgpu_magic.frameworks.torch.framework import Torch
from tfgpu_magic.ground.snapshot import Gpu
from tfgpu_magic.policy.fit import Device
from tfgpu_magic.policy.memory import Percentage, add, part
from tfgpu_magic.policy.plan import FrameworkPlan, FrameworkState

NEW = FrameworkState(version=(1000,))


def wanted(size: int, **gpu: int | bool | None) -> FrameworkPlan:
    one = Gpu(index=0, uuid="GPU-0", **gpu)  # type: ignore[arg-type]
    return FrameworkPlan(framework="JAX", devices=(Device(one, (size,)),), growth=False)


@pytest.fixture
def two_digits() -> Iterator[None]:
    """A user's own decimal context: two digits, and whatever cannot be said in them is an error."""
    with decimal.localcontext(decimal.Context(prec=2, traps=[decimal.Inexact, decimal.InvalidOperation])):
        yield


@pytest.mark.usefixtures("two_digits")
def test_a_fraction_is_exact_in_a_program_that_calculates_with_few_digits() -> None:
    uneven = FrameworkPlan(
        framework="JAX",
        devices=(
            *wanted(4 * GIB, total=12 * GIB, used=0, free=12 * GIB).devices,
            Device(gpu=Gpu(index=1, uuid="GPU-1", total=24 * GIB, used=GIB, free=23 * GIB), limits=(9 * GIB,)),
        ),
    )

    assert uneven.fractions == {"GPU-0": Decimal("0.333333"), "GPU-1": Decimal("0.375")}
    assert [*map(str, uneven.lowered())] == [
        "JAX has one limit for all GPUs, a part of each: it takes no more than 8.0 GiB of GPU 1."
    ]


@pytest.mark.usefixtures("two_digits")
def test_so_are_parts_and_sums_of_percentages() -> None:
    assert part(Percentage(Decimal(40)), 3) == Percentage(Decimal("13.33"))
    assert add((Percentage(Decimal("33.3")), Percentage(Decimal("66.7")))) == Percentage(Decimal(100))
    assert add((Percentage(Decimal("33.3")), Percentage(Decimal("66.8")))) is None


def test_of_unified_memory_it_is_the_part_of_the_whole_whatever_is_free() -> None:
    half = wanted(32 * GIB, total=128 * GIB, used=0, free=64 * GIB, unified=True)
    less = wanted(32 * GIB, total=128 * GIB, used=3 * GIB, free=20 * GIB, unified=True)

    assert half.fractions == less.fractions == {"GPU-0": Decimal("0.25")}


@pytest.mark.parametrize(
    "gpu",
    [
        {"total": 16 * GIB},
        {"total": 16 * GIB, "free": 2 * GIB},
        {"total": 17 * GIB, "reserved": GIB, "used": 0, "free": 16 * GIB},
        {"total": 16 * GIB, "used": 3 * GIB, "free": GIB, "limit": 5 * GIB},  # CUDA shows all of it
    ],
)
def test_where_the_driver_tells_enough_to_know_the_whole_a_limit_is_told(gpu: dict[str, int]) -> None:
    assert wanted(4 * GIB, **gpu).fractions == {"GPU-0": Decimal("0.25")}


@pytest.mark.parametrize("framework", [Torch(), Jax()])
@pytest.mark.parametrize("gpu", [{}, {"free": 8 * GIB}, {"free": 64 * GIB, "used": 0, "unified": True}])
def test_where_it_does_not_a_limit_is_refused(framework: Framework, gpu: dict[str, int]) -> None:
    with pytest.raises(Refused, match=r"GPU 0: the driver does not tell how much memory it has, and only TensorFlow"):
        framework.plan(wanted(4 * GIB, **gpu), NEW)
