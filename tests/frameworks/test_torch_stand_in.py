"""PyTorch's stage and figures by its interface, of a stand-in that has CUDA: `test_torch.py` has the real one."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from tests.figures import pytorch
from tests.frameworks.torch_stand_in import torch
from tests.sizes import GIB
from tfgpu_magic.errors import Refused
from tfgpu_magic.frameworks import registry
from tfgpu_magic.frameworks.torch import framework
from tfgpu_magic.frameworks.torch.framework import Torch
from tfgpu_magic.insight.freeing import free
from tfgpu_magic.model.report import Figure
from tfgpu_magic.model.snapshot import Gpu
from tfgpu_magic.policy.fit import Device
from tfgpu_magic.policy.framework_plan import FrameworkPlan, FrameworkRequest, FrameworkState
from tfgpu_magic.policy.process_state import Stage


@pytest.fixture(autouse=True)
def _two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfgpu_magic.frameworks.cuda.shown", lambda: ("GPU-1", "GPU-2"))


def test_its_figures_are_those_of_the_gpus_that_it_has_taken_memory_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch(allocated=[0, 3], reserved=[0, 8]))

    assert Torch().figures() == {"GPU-2": pytorch(3, 8, peak=6)}


def test_its_peak_is_since_its_beginning_though_a_cells_measuring_has_reset_the_counter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allocated = [0, 3]
    monkeypatch.setitem(sys.modules, "torch", torch(allocated=allocated, reserved=[0, 8]))
    monkeypatch.setattr(Torch.counters, "_others", {})
    Torch().reset_peaks()
    allocated[1] = 1

    assert Torch().figures() == {"GPU-2": pytorch(1, 8, peak=6)}


def test_a_limit_is_shown_in_bytes_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    limited = torch(allocated=[3, 3], reserved=[8, 8], fractions=[0.25, 1.0], total=16 * GIB)
    monkeypatch.setitem(sys.modules, "torch", limited)

    shown = Torch().figures()

    assert shown["GPU-1"][-1] == Figure(framework="PyTorch", what="limit", size=4 * GIB)
    assert shown["GPU-2"] == pytorch(3, 8, peak=6)


def test_one_that_has_not_started_cuda_is_asked_for_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    asleep = torch(allocated=[], reserved=[], awake=False)  # any question of a GPU would fail
    monkeypatch.setitem(sys.modules, "torch", asleep)

    assert Torch().stage() is Stage.IMPORTED
    assert registry.figures() == {}


@pytest.mark.parametrize("module", [SimpleNamespace(), SimpleNamespace(cuda=SimpleNamespace())])
def test_one_that_is_being_imported_is_left_alone(module: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", module)

    assert Torch().stage() is Stage.ABSENT
    assert registry.figures() == {}


def test_a_limit_that_could_not_be_left_for_cudas_start_is_left_at_the_next_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = torch(allocated=[], reserved=[], awake=False)
    framework, plan = Torch(), FrameworkPlan(framework="PyTorch", fractions={"GPU-1": Decimal("0.25")})
    told: list[object] = []
    monkeypatch.setitem(sys.modules, "torch", module)
    with pytest.raises(AttributeError):  # another thread has imported half of it
        framework.configure(plan)
    module.cuda._lazy_call = told.append

    framework.configure(plan)
    framework.configure(plan)

    assert told == [framework._tell_at_start]


def limited(**fractions: str) -> FrameworkPlan:
    """Return a plan for two GPUs, some of which are limited."""
    those = {uuid.replace("_", "-"): Decimal(fraction) for uuid, fraction in fractions.items()}
    return FrameworkPlan(framework="PyTorch", fractions=those, gpus=frozenset({"GPU-1", "GPU-2"}))


@pytest.mark.parametrize("version", ["2.6.0", "2.9.1"])
def test_to_2_9_neither_a_limit_nor_a_look_moves_the_current_gpu_or_makes_a_context(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = torch(allocated=[3, 0], reserved=[8, 0], fractions=[1.0, 1.0], total=16 * GIB, version=version)
    monkeypatch.setitem(sys.modules, "torch", module)
    names = ["GPU-1", "GPU-2"]
    monkeypatch.setattr("tfgpu_magic.frameworks.cuda.contexts", lambda: tuple(names[one] for one in module.contexts))
    framework = Torch()

    framework.pools()
    framework.configure(limited(GPU_1="0.25", GPU_2="0.5"))
    pools = framework.pools()

    assert (module.current, module.contexts, module.fractions) == ([0], [0], [0.25, 1.0])
    assert [pool.limit for pool in pools] == [4 * GIB]

    module.contexts.append(1)  # a cell has used the second GPU
    framework.after_cell()

    assert (module.current, module.contexts, module.fractions) == ([0], [0, 1], [0.25, 0.5])

    framework.configure(FrameworkPlan(framework="PyTorch"))

    assert (module.current, module.fractions) == ([0], [1.0, 1.0])


def test_pytorch_that_does_not_take_a_limit_at_its_start_can_be_used_and_the_other_gpus_are_held(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = torch(allocated=[0, 0], reserved=[0, 0], fractions=[1.0, 1.0], awake=False)
    monkeypatch.setitem(sys.modules, "torch", module)
    queued: list[Callable[[], None]] = []
    module.cuda._lazy_call = queued.append
    read = module.cuda.get_per_process_memory_fraction

    def fails(number: int) -> float:
        if number == 0:
            raise RuntimeError("CUDAPluggableAllocator does not yet support getMemoryFraction")
        return float(read(number))

    module.cuda.get_per_process_memory_fraction = fails
    Torch().configure(limited(GPU_1="0.25", GPU_2="0.5"))

    queued[0]()  # what it raises would be raised by every later call of CUDA

    assert module.fractions == [1.0, 0.5]
    assert "PyTorch is NOT held to its limit: CUDAPluggableAllocator does not yet support" in capsys.readouterr().err


def test_an_allocator_without_a_limit_says_more_than_all_and_that_is_all(monkeypatch: pytest.MonkeyPatch) -> None:
    unset = 2.0e8  # cudaMallocAsync: UINT64_MAX of the GPU's total
    module = torch(allocated=[3, 3], reserved=[8, 8], fractions=[unset, unset], total=16 * GIB)
    monkeypatch.setitem(sys.modules, "torch", module)
    framework = Torch()

    framework.configure(limited(GPU_1="0.25"))
    assert module.fractions == [0.25, unset]

    framework.configure(FrameworkPlan(framework="PyTorch"))
    assert module.fractions == [1.0, unset]


def test_a_gpu_that_the_plan_did_not_see_has_the_smallest_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfgpu_magic.frameworks.cuda.shown", lambda: ("GPU-3", "GPU-1"))
    module = torch(allocated=[3, 3], reserved=[8, 8], fractions=[1.0, 1.0], total=16 * GIB)
    monkeypatch.setitem(sys.modules, "torch", module)

    Torch().configure(limited(GPU_1="0.5", GPU_2="0.25"))

    assert module.fractions == [0.25, 0.5]


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (
            {"environment": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}},
            "PYTORCH_NO_CUDA_MEMORY_CACHING is set, with which PyTorch heeds no limit.",
        ),
        ({"allocator": "pluggable"}, "PyTorch allocates through a pluggable allocator, which heeds no limit."),
    ],
)
def test_a_limit_that_pytorch_would_not_heed_is_refused_and_a_configured_one_is_said_to_be_unmet(
    state: dict[str, Any], why: str
) -> None:
    device = Device(gpu=Gpu(index=0, uuid="GPU-1", total=16 * GIB), limits=(4 * GIB,))
    wanted, framework = FrameworkRequest(devices=(device,), grows=True), Torch()

    with pytest.raises(Refused, match=re.escape(why)):
        framework.plan(wanted, FrameworkState(version=(2, 13), **state))
    made = framework.plan(replace(wanted, asked=False), FrameworkState(version=(2, 13), **state))
    grows = framework.plan(FrameworkRequest(grows=True), FrameworkState(version=(2, 13), **state))

    assert made.unmet.startswith(why)
    assert all(made.environment[name] is None for name in state.get("environment", ()))
    assert not grows.unmet


def test_letting_go_has_it_give_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch(allocated=[3, 0], reserved=[8, 0]))

    free()

    assert Torch().held() == {"GPU-1": 3}


@pytest.mark.parametrize(
    ("version", "moves"), [("2.9.1", True), ("2.10.0", False), ("2.11.0+cu130", False), ("", False)]
)
def test_from_2_10_on_a_fraction_makes_no_context(monkeypatch: pytest.MonkeyPatch, version: str, moves: bool) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__=version))

    assert framework._moves() is moves
