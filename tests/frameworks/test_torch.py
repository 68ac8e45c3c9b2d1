"""The real PyTorch: each call that is made into it does what is promised; the build for the CPU has no CUDA below."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.cgroups import cgroup2
from tests.figures import pytorch
from tests.frameworks import torch_on_machine as on_machine
from tests.frameworks.torch_on_machine import ALLOCATED, PEAK, RESERVED
from tests.machines import machine_of
from tests.processes import run
from tests.simgpu.on_machine import set_limits
from tests.sizes import GIB, MIB
from tfgpu_magic.frameworks.torch.framework import CUDA_OPTIONS, OPTIONS
from tfgpu_magic.model.report import Figure
from tfgpu_magic.simgpu import Machine

pytestmark = pytest.mark.frameworks

machine = machine_of("2x8GiB")


def limits(figures: Iterable[Figure]) -> list[int]:
    """Return the limit in MiB, rounded up: a fraction has six places."""
    return [-(figure.size // -MIB) for figure in figures if figure.what == "limit"]


@pytest.mark.parametrize(
    ("steps", "sizes"),
    [
        (["limit 2GiB", "import", "use"], [2, 2]),
        (["import", "limit 2GiB", "use"], [2, 2]),
        (["import", "use", "limit 2GiB"], [2, 2]),
        (["import", "limit 0=2GiB 1=4GiB", "use"], [2, 4]),
    ],
)
def test_a_limit_is_in_force_from_the_first_use_at_each_stage(
    machine: Machine, steps: list[str], sizes: list[int]
) -> None:
    figures, *_ = run(machine, on_machine.told, steps, fresh=True)

    assert [limits(figures[gpu.uuid]) for gpu in machine.gpus()] == [[size * GIB // MIB] for size in sizes]


def test_its_figures_are_its_own_of_each_gpu(machine: Machine) -> None:
    figures, *_ = run(machine, on_machine.told, ["import", "limit 2GiB", "default", "use"], fresh=True)

    first, second = (gpu.uuid for gpu in machine.gpus())
    assert figures == {
        first: pytorch(ALLOCATED, RESERVED, peak=PEAK),
        second: pytorch(2 * ALLOCATED, 2 * RESERVED, peak=2 * PEAK),
    }


def test_a_limit_below_what_it_has_reserved_is_refused(machine: Machine) -> None:
    figures, _, refused = run(machine, on_machine.told, ["import", "use", "limit 128MiB"], fresh=True)

    assert refused.startswith("Not applied. PyTorch has taken 256 MiB of GPU 0 already, and is to have 128 MiB.")
    assert not any(map(limits, figures.values()))


def test_it_reads_the_limit_with_its_other_options(machine: Machine) -> None:
    env = {CUDA_OPTIONS: "max_split_size_mb:128", OPTIONS: "max_split_size_mb:64"}

    _, options, _ = run(machine, on_machine.told, ["limit 2GiB", "import"], env=env, fresh=True)

    assert options.startswith("max_split_size_mb:128,per_process_memory_fraction:0.2")


def test_an_allocator_that_reads_no_limit_in_its_options_is_told_at_its_start(machine: Machine) -> None:
    env = {OPTIONS: "backend:cudaMallocAsync"}

    figures, options, _ = run(machine, on_machine.told, ["limit 2GiB", "import", "use"], env=env, fresh=True)

    assert options == env[OPTIONS]
    assert [limits(those) for those in figures.values()] == [[2 * GIB // MIB]] * 2


def test_what_its_cache_gives_back_is_told_by_gpu(machine: Machine) -> None:
    gone = run(machine, on_machine.given_back, fresh=True)

    first, second = (gpu.uuid for gpu in machine.gpus())
    assert gone == {first: RESERVED - ALLOCATED, second: 2 * (RESERVED - ALLOCATED)}


def test_asking_for_its_stage_memory_and_version_starts_nothing(machine: Machine) -> None:
    stage, memory, started, version = run(machine, on_machine.asked_without_a_start, fresh=True)

    assert (stage, memory, started) == ("IMPORTED", [0, 0, 0], False)
    assert version >= (2, 13)


def test_its_peaks_are_shared_with_those_who_reset_them(machine: Machine) -> None:
    outer, inner, theirs = run(machine, on_machine.measured, fresh=True)

    assert (outer, inner, theirs) == (700 * MIB, 300 * MIB, 200 * MIB)


def test_the_stand_ins_have_its_functions_and_their_arguments(machine: Machine) -> None:
    assert run(machine, on_machine.unlike_the_stand_ins, fresh=True) == []


def test_its_tensors_and_gradients_are_found_by_name_and_views_count_once(machine: Machine) -> None:
    found, in_use = run(machine, on_machine.by_name, fresh=True)

    assert found == {"w": 4 * MIB, "w.grad": 4 * MIB, "batch[0]": 2 * MIB}
    assert in_use == ALLOCATED


def test_a_tensor_for_a_call_is_refused_before_it_is_copied(machine: Machine) -> None:
    assert run(machine, on_machine.copied, fresh=True) == 0


def test_below_the_cgroup_that_the_driver_limits_a_share_is_of_the_limit() -> None:
    with cgroup2() as limited, Machine.create("16GiB") as machine:
        machine.set_driver("615.71.09")
        (inside := limited / "below").mkdir()
        for _ in range(2):  # of a virgin cgroup, it may be refused once
            refused = run(machine, set_limits, limited, 0, 4 * GIB, fresh=True)
        figures, *_ = run(machine, on_machine.within, inside, ["limit 40%", "import", "use"], fresh=True)

    assert refused is None
    assert [limits(one) for one in figures.values()] == [[1638]]  # 40% of 4 GiB, of a total of 16
