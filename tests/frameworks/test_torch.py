"""The real PyTorch: each call that is made into it does what is promised; the build for the CPU has no CUDA below."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from typing import Any
from unittest import mock

import pytest

import tfgpu_magic
from tests.cgroups import cgroup2
from tests.figures import pytorch
from tests.frameworks.cells_on_machine import STAND_IN
from tests.frameworks.torch_on_machine import ALLOCATED, PEAK, RESERVED, go, imported, limits, options, within
from tests.processes import on, run
from tests.simgpu.on_machine import set_limits
from tests.sizes import GIB, MIB
from tests.tf.on_machine import here, refused
from tfgpu_magic.frameworks import registry
from tfgpu_magic.frameworks.torch.framework import CUDA_OPTIONS, OPTIONS, Torch
from tfgpu_magic.insight.objects.tensors import tensors
from tfgpu_magic.isolate.values import pickling
from tfgpu_magic.machine import host_memory
from tfgpu_magic.simgpu import Machine

pytestmark = pytest.mark.frameworks


@pytest.mark.parametrize(
    ("steps", "sizes"),
    [
        (["limit 2GiB", "import", "use"], [2048, 2048]),
        (["import", "limit 2GiB", "use"], [2048, 2048]),
        (["import", "use", "limit 2GiB"], [2048, 2048]),
        (["import", "limit 0=2GiB 1=4GiB", "use"], [2048, 4096]),
    ],
)
@on("2x8GiB", fresh=True)
def test_a_limit_is_in_force_from_the_first_use_at_each_stage(steps: list[str], sizes: list[int]) -> None:
    go(*steps)

    assert limits() == sizes


@on("2x8GiB", fresh=True)
def test_its_figures_are_its_own_of_each_gpu() -> None:
    go("import", "limit 2GiB", "default", "use")

    first, second = (gpu.uuid for gpu in here().gpus())
    assert registry.figures() == {
        first: pytorch(ALLOCATED, RESERVED, peak=PEAK),
        second: pytorch(2 * ALLOCATED, 2 * RESERVED, peak=2 * PEAK),
    }
    assert Torch().give_back() == {first: RESERVED - ALLOCATED, second: 2 * (RESERVED - ALLOCATED)}


@on("2x8GiB", fresh=True)
def test_a_limit_below_what_it_has_reserved_is_refused() -> None:
    go("import", "use")

    assert "PyTorch has taken 256 MiB of GPU 0 already, and is to have 128 MiB." in refused("limit 128MiB", "all")
    assert limits() == []


@on("2x8GiB", fresh=True, env={CUDA_OPTIONS: "max_split_size_mb:128", OPTIONS: "max_split_size_mb:64"})
def test_it_reads_the_limit_with_its_other_options() -> None:
    go("limit 2GiB")

    assert options(imported()).startswith("max_split_size_mb:128,per_process_memory_fraction:0.2")


@on("2x8GiB", fresh=True, env={OPTIONS: "backend:cudaMallocAsync"})
def test_an_allocator_that_reads_no_limit_in_its_options_is_told_at_its_start() -> None:
    go("limit 2GiB", "import", "use")

    assert options(imported()) == "backend:cudaMallocAsync"
    assert limits() == [2048, 2048]


@on("2x8GiB", fresh=True)
def test_asking_for_its_stage_memory_and_version_starts_nothing() -> None:
    import torch

    assert Torch().stage().name == "IMPORTED"
    assert torch.cuda.memory_reserved(0) == torch.cuda.max_memory_allocated(0) == 0
    assert Torch().version() >= (2, 13)
    assert not torch.cuda.is_initialized()


@on("2x8GiB", fresh=True)
def test_its_peaks_are_shared_with_those_who_reset_them() -> None:
    with tfgpu_magic.measure(driver=False) as outer:
        torch = imported()
        torch.cuda.init()
        use = torch.cuda._cudart.use
        use(0, 700 * MIB)
        use(0, 50 * MIB)
        with tfgpu_magic.measure(driver=False) as inner:
            use(0, 300 * MIB)
            use(0, 100 * MIB)
            torch.cuda.reset_peak_memory_stats(0)
            use(0, 200 * MIB)
            use(0, 10 * MIB)

    assert (outer.peak, inner.peak, torch.cuda.max_memory_allocated(0)) == (700 * MIB, 300 * MIB, 200 * MIB)


@on("2x8GiB", fresh=True)
def test_the_stand_in_has_its_functions_and_their_arguments() -> None:
    import torch

    spec = importlib.util.spec_from_file_location("stand_in", STAND_IN / "torch" / "cuda.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    functions = {name: one for name, one in vars(module).items() if inspect.isfunction(one) and name != "_count"}

    assert len(functions) > 10
    for name, function in functions.items():
        inspect.signature(getattr(torch.cuda, name)).bind(*inspect.signature(function).parameters)


@on("2x8GiB", fresh=True)
def test_its_tensors_and_gradients_are_found_by_name_and_views_count_once() -> None:
    """The tensors are in the computer's memory, and of a class that says that they are on a GPU."""
    torch = imported()
    torch.cuda.init()

    class OnGpu(torch.Tensor):  # type: ignore[misc, name-defined]  # mypy does not know it
        is_cuda = True

        def get_device(self) -> int:
            return 0

        @classmethod
        def __torch_function__(cls, *_: object, **__: object) -> Any:
            raise AssertionError("code of the user's was run")

    def on_gpu(size: int) -> Any:
        return torch.zeros(size // 4).as_subclass(OnGpu)

    main: Any = sys.modules["__main__"]
    with torch._C.DisableTorchFunctionSubclass():
        main.w = on_gpu(4 * MIB).requires_grad_()
        main.w.grad = on_gpu(4 * MIB)
        main.batch = [on_gpu(2 * MIB)]
        main.row = main.batch[0][16:32]

    taken = tensors()

    found = {one.name.expression: one.size for one in taken.holdings}
    assert found == {"w": 4 * MIB, "w.grad": 4 * MIB, "batch[0]": 2 * MIB}
    assert taken.accounts[0].in_use == ALLOCATED


@on("2x8GiB", fresh=True)
def test_a_tensor_for_a_call_is_refused_before_it_is_copied() -> None:
    import torch

    tensor = torch.zeros(130 * MIB, dtype=torch.uint8)
    with (
        mock.patch.object(host_memory, "free_bytes", return_value=100 * MIB),
        mock.patch.object(torch, "save") as save,
        pytest.raises(OSError, match="no room for 130 MiB"),
    ):
        pickling.dump((tensor[::2],))

    assert save.call_count == 0


def test_below_the_cgroup_that_the_driver_limits_a_share_is_of_the_limit() -> None:
    with cgroup2() as limited, Machine.create("16GiB") as machine:
        machine.set_driver("615.71.09")
        (inside := limited / "below").mkdir()
        for _ in range(2):  # of a virgin cgroup, it may be refused once
            refused = run(machine, set_limits, limited, 0, 4 * GIB, fresh=True)
        sizes = run(machine, within, inside, ["limit 40%", "import", "use"], fresh=True)

    assert refused is None
    assert sizes == [1638]  # 40% of 4 GiB, of a total of 16
