"""PyTorch's stage, figures and limit, with a stand-in that has CUDA: `test_torch.py` has the real one."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from dataclasses import replace
from decimal import Decimal
from itertools import starmap, zip_longest
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from tests.figures import pytorch
from tests.frameworks.cells_on_machine import stand_in
from tests.processes import on
from tests.sizes import GIB
from tests.tf.on_machine import here
from tfgpu_magic.errors import Refused
from tfgpu_magic.frameworks import cuda, registry
from tfgpu_magic.frameworks.torch import framework
from tfgpu_magic.frameworks.torch.framework import Torch
from tfgpu_magic.ground.report import Figure
from tfgpu_magic.ground.snapshot import Gpu
from tfgpu_magic.insight.freeing import free
from tfgpu_magic.policy.fit import Device
from tfgpu_magic.policy.plan import FrameworkPlan, FrameworkState
from tfgpu_magic.policy.process_state import Stage

ALL = "cuda:0", "cuda:1"


def uuids() -> tuple[str, str]:
    first, second = (gpu.uuid for gpu in here().gpus())
    return first, second


def limited(*fractions: str) -> FrameworkPlan:
    """Return what is done about PyTorch on two GPUs, the first of which are limited."""
    limits = [(int(Decimal(fraction) * GIB),) for fraction in fractions]
    gpus = (Gpu(index=number, uuid=uuid, total=GIB) for number, uuid in enumerate(uuids()))
    return FrameworkPlan(framework="PyTorch", devices=tuple(starmap(Device, zip_longest(gpus, limits, fillvalue=()))))


def fractions(torch: Any) -> list[float]:
    return [torch.cuda._fractions[number] for number in range(2)]


@on("2x16GiB", imported=False)
def test_its_figures_are_those_of_the_gpus_that_it_has_taken_memory_of() -> None:
    torch = stand_in()
    assert Torch().stage() is Stage.IMPORTED
    assert registry.figures() == {}
    assert not torch.cuda.is_initialized()

    kept = torch.zeros(3 * GIB, "cuda:1")
    torch.zeros(2 * GIB, "cuda:1")

    assert kept
    assert registry.figures() == {uuids()[1]: pytorch(3 * GIB, 5 * GIB, peak=5 * GIB)}


@on("2x16GiB", imported=False)
def test_its_peak_is_since_its_beginning_though_a_cells_measuring_has_reset_the_counter() -> None:
    stand_in().zeros(6 * GIB, "cuda:1")

    Torch().reset_peaks()

    assert Torch().figures() == {uuids()[1]: pytorch(0, 6 * GIB, peak=6 * GIB)}


@on("2x16GiB", imported=False)
def test_a_limit_is_shown_in_bytes_where_there_is_one() -> None:
    torch = stand_in()
    kept = [torch.zeros(3 * GIB, gpu) for gpu in ALL]
    torch.cuda.set_per_process_memory_fraction(0.25, 0)

    first, second = Torch().figures().values()

    total = torch.cuda.get_device_properties(0).total_memory
    assert first[-1] == Figure(framework="PyTorch", what="limit", size=total // 4)
    assert second == pytorch(3 * GIB, 3 * GIB)
    assert len(kept) == 2


@pytest.mark.parametrize("module", [SimpleNamespace(), SimpleNamespace(cuda=SimpleNamespace())])
def test_one_that_is_being_imported_is_left_alone(module: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", module)

    assert Torch().stage() is Stage.ABSENT
    assert registry.figures() == {}


@on("2x16GiB", imported=False)
def test_a_limit_that_could_not_be_left_for_cudas_start_is_left_at_the_next_word() -> None:
    torch, framework, told = stand_in(), Torch(), list[object]()
    del torch.cuda._lazy_call
    with pytest.raises(AttributeError):  # another thread has imported half of it
        framework.configure(limited("0.25"))
    torch.cuda._lazy_call = told.append

    framework.configure(limited("0.25"))
    framework.configure(limited("0.25"))

    assert told == [framework._set_all_at_start]


@pytest.mark.parametrize("release", ["2.6", "2.9"])
@on("2x16GiB", imported=False)
def test_to_2_9_neither_a_limit_nor_a_look_moves_the_current_gpu_or_makes_a_context(release: str) -> None:
    torch, framework = stand_in(release), Torch()
    kept = [torch.zeros(3 * GIB)]
    framework.pools()

    framework.configure(limited("0.25", "0.5"))

    assert [pool.limit for pool in framework.pools()] == [torch.cuda.get_device_properties(0).total_memory // 4]
    assert (torch.cuda.current_device(), cuda.gpus_in_use(), fractions(torch)) == (0, uuids()[:1], [0.25, 1.0])

    kept.append(torch.zeros(3 * GIB, "cuda:1"))  # a cell has used the second GPU
    framework.after_cell()

    assert (torch.cuda.current_device(), cuda.gpus_in_use(), fractions(torch)) == (0, uuids(), [0.25, 0.5])

    framework.configure(FrameworkPlan(framework="PyTorch"))

    assert (torch.cuda.current_device(), fractions(torch)) == (0, [1.0, 1.0])


@on("2x16GiB", imported=False)
def test_pytorch_that_does_not_take_a_limit_at_its_start_can_be_used_and_the_other_gpus_are_held() -> None:
    torch = stand_in()
    read = torch.cuda.get_per_process_memory_fraction

    def fails(number: int) -> float:
        if number == 0:
            raise RuntimeError("CUDAPluggableAllocator does not yet support getMemoryFraction")
        return float(read(number))

    torch.cuda.get_per_process_memory_fraction = fails
    Torch().configure(limited("0.25", "0.5"))

    with contextlib.redirect_stderr(io.StringIO()) as heard:
        torch.cuda._lazy_init()  # what we raise would be raised by every later call of CUDA

    assert fractions(torch) == [1.0, 0.5]
    assert "PyTorch is NOT held to its limit: CUDAPluggableAllocator" in heard.getvalue()


@on("2x16GiB", imported=False)
def test_an_allocator_without_a_limit_says_more_than_all_and_that_is_all() -> None:
    torch, framework = stand_in(), Torch()
    torch.cuda._lazy_init()
    unset = 2.0e8  # cudaMallocAsync: UINT64_MAX of the GPU's total
    torch.cuda._fractions.update(dict.fromkeys(range(2), unset))

    framework.configure(limited("0.25"))
    assert fractions(torch) == [0.25, unset]

    framework.configure(FrameworkPlan(framework="PyTorch"))
    assert fractions(torch) == [1.0, unset]


@on("2x16GiB", imported=False)
def test_a_gpu_that_the_plan_did_not_see_has_the_smallest_share() -> None:
    torch, shown = stand_in(), ("GPU-new", uuids()[0])
    torch.cuda._lazy_init()

    with mock.patch.object(cuda, "visible_gpus", return_value=shown):
        Torch().configure(limited("0.5", "0.25"))

    assert fractions(torch) == [0.25, 0.5]


@on("2x16GiB", imported=False)
def test_letting_go_has_it_give_back_what_it_keeps() -> None:
    torch = stand_in()
    kept = torch.zeros(3 * GIB)
    torch.zeros(5 * GIB)
    assert Torch().held() == {uuids()[0]: 8 * GIB}

    free()

    assert Torch().held() == {uuids()[0]: 3 * GIB}
    del kept
    assert Torch().give_back() == {uuids()[0]: 3 * GIB}


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"environment": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}}, "PYTORCH_NO_CUDA_MEMORY_CACHING is set, with which"),
        ({"allocator": "pluggable"}, "PyTorch allocates through a pluggable allocator, which heeds no limit."),
    ],
)
def test_a_limit_that_pytorch_would_not_heed_is_refused_and_a_configured_one_is_said_to_be_unmet(
    state: dict[str, Any], why: str
) -> None:
    device = Device(gpu=Gpu(index=0, uuid="GPU-1", total=16 * GIB), limits=(4 * GIB,))
    wanted, now = FrameworkPlan(devices=(device,), growth=True), FrameworkState(version=(2, 13), **state)

    with pytest.raises(Refused, match=re.escape(why)):
        Torch().plan(wanted, now)
    made = Torch().plan(wanted, replace(now, strict=False))

    assert str(made.unmet).startswith(why)
    assert all(made.environment[name] is None for name in state.get("environment", ()))
    assert not Torch().plan(FrameworkPlan(growth=True), now).unmet


@pytest.mark.parametrize(
    ("version", "moves"), [("2.9.1", True), ("2.10.0", False), ("2.11.0+cu130", False), ("", False)]
)
def test_from_2_10_on_a_fraction_makes_no_context(monkeypatch: pytest.MonkeyPatch, version: str, moves: bool) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__=version))

    assert framework._makes_context() is moves
