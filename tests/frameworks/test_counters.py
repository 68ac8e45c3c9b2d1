"""PyTorch's and JAX's counters, with stand-ins for what they tell: measured, and the same for others as before."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import tfgpu_magic
from tests.sizes import GIB, MIB
from tfgpu_magic import frameworks
from tfgpu_magic.config import cuda, import_hook
from tfgpu_magic.frameworks import torch as pytorch


class Gpu:
    """What PyTorch's allocator counts of one GPU."""

    def __init__(self) -> None:
        self.current = self.peak = 0

    def use(self, size: int) -> None:
        self.current, self.peak = size, max(self.peak, size)

    def figures(self) -> dict[str, Any]:
        both = {"current": self.current, "peak": self.peak}
        return {
            "num_ooms": 0,
            "allocated_bytes": {"all": dict(both)},
            "reserved_bytes": {"all": {"current": 2 * GIB, "peak": 2 * GIB}},
            "reserved_bytes_by_private_pools": {(0, 1): {"all": dict(both)}},
        }

    def reset(self) -> None:
        self.peak = self.current


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> list[Gpu]:
    """Have a PyTorch that uses two GPUs, and be its allocator."""
    gpus = [Gpu(), Gpu()]
    module, memory = ModuleType("torch"), ModuleType("torch.cuda.memory")
    module.device = lambda name: SimpleNamespace(index=int(name.partition(":")[2]))  # type: ignore[attr-defined]
    module.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        is_initialized=lambda: True,
        current_device=lambda: 0,
        memory_stats_as_nested_dict=lambda device=None: gpus[int(str(device or 0)[-1])].figures(),
        reset_peak_memory_stats=lambda device=None: gpus[int(str(device or 0)[-1])].reset(),
    )
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setitem(sys.modules, "torch.cuda.memory", memory)
    monkeypatch.setattr(cuda, "shown", lambda: ("GPU-a", "GPU-b"))
    monkeypatch.setattr(pytorch._COUNTERS, "_others", {})
    monkeypatch.setattr(import_hook, "_given", set())  # as in a process that has imported this one
    return gpus


def theirs(device: Any = None) -> int:
    peak: int = sys.modules["torch"].cuda.memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]["peak"]
    return peak


def test_pytorch_is_measured_by_gpu_and_its_own_functions_tell_the_same_as_before(torch: list[Gpu]) -> None:
    first, second = torch
    first.use(900 * MIB)
    first.use(100 * MIB)
    with tfgpu_magic.measure(driver=False) as outer:
        first.use(300 * MIB)
        with tfgpu_magic.measure(driver=False) as inner:
            first.use(200 * MIB)
            second.use(50 * MIB)

    assert [(one.name, one.gpu, one.before, one.peak) for one in inner.result.pools] == [
        ("cuda:0", "GPU-a", 300 * MIB, 300 * MIB),
        ("cuda:1", "GPU-b", 0, 50 * MIB),
    ]
    assert outer.peak == 300 * MIB
    assert (theirs(), theirs(1)) == (900 * MIB, 50 * MIB)
    assert sys.modules["torch.cuda.memory"].memory_stats_as_nested_dict(0)["reserved_bytes"]["all"]["peak"] == 2 * GIB


def test_a_reset_by_the_user_of_pytorch_counts_for_them_alone(torch: list[Gpu]) -> None:
    gpu = torch[1]
    gpu.use(800 * MIB)
    with tfgpu_magic.measure(driver=False) as m:
        gpu.use(500 * MIB)
        sys.modules["torch"].cuda.reset_peak_memory_stats("cuda:1")
        gpu.use(600 * MIB)
        gpu.use(10 * MIB)

    assert [one.peak for one in m.result.pools] == [0, 800 * MIB]
    assert theirs("cuda:1") == 600 * MIB


def test_jax_tells_a_peak_only_where_it_is_higher_than_before_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stats = {"bytes_in_use": MIB, "peak_bytes_in_use": 900 * MIB, "bytes_limit": 2 * GIB}
    device = SimpleNamespace(local_hardware_id=0, memory_stats=lambda: stats)
    bridge = ModuleType("jax._src.xla_bridge")
    bridge._backends = {"cuda": SimpleNamespace(local_devices=lambda: [device])}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
    monkeypatch.setattr(cuda, "shown", lambda: ("GPU-a",))

    with tfgpu_magic.measure(driver=False) as low:
        stats["bytes_in_use"] = 3 * MIB
    with tfgpu_magic.measure(driver=False) as high:
        stats["peak_bytes_in_use"] = 1000 * MIB

    assert (low.peak, low.delta, low.result.pools[0].exact) == (900 * MIB, 2 * MIB, False)
    assert "peak at most 900 MiB, 2 MiB stayed" in repr(low)
    assert "JAX's peak cannot be counted anew: it was not higher than before." in repr(low)
    assert (high.peak, high.result.pools[0].exact) == (1000 * MIB, True)


def test_a_framework_that_fails_leaves_the_others_their_figures(torch: list[Gpu]) -> None:
    sys.modules["torch"].cuda.memory_stats_as_nested_dict = lambda _: 1 / 0
    with tfgpu_magic.measure(driver=False) as m:
        pass

    assert m.result.pools == ()
    assert set(frameworks.session_peaks()) >= {"TensorFlow", "JAX"}
