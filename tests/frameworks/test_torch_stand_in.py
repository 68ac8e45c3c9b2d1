"""PyTorch's stage and figures by its interface, of a stand-in that has CUDA: `test_torch.py` has the real one."""

from __future__ import annotations

import sys
from decimal import Decimal
from types import SimpleNamespace

import pytest

from tests.figures import pytorch
from tests.frameworks.torch_stand_in import torch
from tests.sizes import GIB
from tfgpu_magic import frameworks
from tfgpu_magic.config.framework_plan import FrameworkPlan
from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.frameworks.torch import Torch
from tfgpu_magic.insight.freeing import free
from tfgpu_magic.monitor.report import Figure


@pytest.fixture(autouse=True)
def _two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfgpu_magic.config.cuda.shown", lambda: ("GPU-1", "GPU-2"))


def test_its_figures_are_those_of_the_gpus_that_it_has_taken_memory_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch(allocated=[0, 3], reserved=[0, 8]))

    assert Torch().figures() == {"GPU-2": pytorch(3, 8, peak=6)}


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
    assert frameworks.figures() == {}


@pytest.mark.parametrize("module", [SimpleNamespace(), SimpleNamespace(cuda=SimpleNamespace())])
def test_one_that_is_being_imported_is_left_alone(module: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", module)

    assert Torch().stage() is Stage.ABSENT
    assert frameworks.figures() == {}


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

    assert told == [framework._tell]


@pytest.mark.processes
def test_letting_go_has_it_give_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch(allocated=[3, 0], reserved=[8, 0]))

    free()

    assert Torch().held() == {"GPU-1": 3}
