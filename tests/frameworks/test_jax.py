"""The real JAX on the simulated machine: what its variables do, by the driver's account, and what we read of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from tests.cgroups import cgroup2
from tests.figures import jax
from tests.frameworks import jax_on_machine as on_machine
from tests.machines import machine_of
from tests.processes import run
from tests.simgpu.on_machine import set_limits
from tests.sizes import CONTEXT, GIB, MIB
from tfgpu_magic.frameworks import registry
from tfgpu_magic.frameworks.jax.settings import ALLOCATOR, FORMER_FRACTION, FRACTION, PREALLOCATE, variables
from tfgpu_magic.frameworks.shortage import Shortage
from tfgpu_magic.policy.process_state import Stage
from tfgpu_magic.simgpu import Machine

pytestmark = pytest.mark.frameworks

machine = machine_of("2x2GiB")
PAGE = 2 * MIB
"""What virtual memory management allocates in."""


def on(machine: Machine, function: Any, *args: Any, env: Mapping[str, str | None] | None = None) -> Any:
    """Run a function in a process of its own, with these variables."""
    told = {name: value for name, value in (env or {}).items() if value is not None}
    return run(machine, function, *args, env=told, fresh=True)


def part(machine: Machine, fraction: float) -> int:
    """Return a part of the total that CUDA tells of a GPU, in whole pages."""
    gpu = machine.gpus()[0]
    return -(int((gpu.total - gpu.reserved) * fraction) // -PAGE) * PAGE


def test_by_default_it_takes_three_quarters_at_its_first_array_and_gives_nothing_back(machine: Machine) -> None:
    pool = part(machine, 0.75)

    assert on(machine, on_machine.by_steps) == {
        "import": [0, 0],
        "list": [CONTEXT, CONTEXT],
        "array": [pool + CONTEXT, CONTEXT],
        "deleted": [pool + CONTEXT, CONTEXT],
    }


@pytest.mark.parametrize("name", [FRACTION, FORMER_FRACTION])
def test_a_fraction_is_of_the_total_and_taken_at_once(machine: Machine, name: str) -> None:
    steps = on(machine, on_machine.by_steps, env={name: "0.3"})

    assert steps["array"] == [part(machine, 0.3) + CONTEXT, CONTEXT]


def test_a_fraction_is_of_the_total_also_where_others_hold_memory() -> None:
    with Machine.create("2GiB") as crowded:
        crowded.add_neighbour("1GiB@0")
        steps = on(crowded, on_machine.by_steps, env={FRACTION: "0.3"})

        assert steps["array"] == [part(crowded, 0.3) + CONTEXT]


def test_with_preallocation_off_it_grows_and_the_fraction_is_a_cap(machine: Machine) -> None:
    settings = variables({"GPU-1": Decimal("0.2"), "GPU-2": Decimal("0.3")}, True, {})

    steps = on(machine, on_machine.by_steps, env=settings)
    given, held, error, known = on(machine, on_machine.fill, env=settings)

    assert steps["array"] == [64 * MIB + CONTEXT, CONTEXT]
    assert part(machine, 0.2) - 64 * MIB < given <= held - CONTEXT <= part(machine, 0.2)
    assert known, error
    assert registry.shortage(RuntimeError(error)) == Shortage(framework="JAX", size=64 * MIB)


@pytest.mark.parametrize(
    ("steps", "size"),
    [
        (["limit 1GiB", "use"], GIB),
        (["import", "limit 1GiB", "use"], GIB),
        (["limit 1GiB --grow", "use"], 64 * MIB),
        (["import", "growth", "use"], 64 * MIB),
    ],
)
def test_it_takes_what_the_words_say_before_its_import_and_after(machine: Machine, steps: list[str], size: int) -> None:
    refused, [held, _] = on(machine, on_machine.told, steps)

    assert refused == ""
    assert size - PAGE < held - CONTEXT <= size


def test_once_it_has_listed_its_gpus_it_is_too_late_and_nothing_changes(machine: Machine) -> None:
    refused, [held, _] = on(machine, on_machine.told, ["list", "limit 1GiB", "use"])

    assert refused.startswith("Not applied. JAX is already using a GPU")
    assert held == part(machine, 0.75) + CONTEXT


def test_another_allocator_takes_no_notice_of_the_fraction(machine: Machine) -> None:
    given, *_ = on(machine, on_machine.fill, env={FRACTION: "0.2", ALLOCATOR: "cuda_async"})

    assert given > 2 * part(machine, 0.2)


def test_both_names_of_the_fraction_cost_it_its_gpus(machine: Machine) -> None:
    both: dict[str, str | None] = {FRACTION: "0.2", FORMER_FRACTION: "0.3"}
    one = variables({"GPU-1": Decimal("0.2")}, False, {FORMER_FRACTION: "0.3"})

    assert on(machine, on_machine.backends, env=both) == ["cpu"]
    assert "cuda" in on(machine, on_machine.backends, env=both | one)


def test_its_stage_is_told_without_waking_it(machine: Machine) -> None:
    assert on(machine, on_machine.stages) == [
        (Stage.ABSENT, [0, 0]),
        (Stage.IMPORTED, [0, 0]),
        (Stage.READY, [CONTEXT, CONTEXT]),
    ]


def test_on_the_cpu_alone_it_leaves_the_gpus_alone(machine: Machine) -> None:
    assert on(machine, on_machine.stages, env={"JAX_PLATFORMS": "cpu"})[-1] == (Stage.IMPORTED, [0, 0])


@pytest.mark.parametrize("shown", ["0,1", "1,0"])
def test_its_figures_are_those_of_the_gpu_that_it_has_used(machine: Machine, shown: str) -> None:
    settings = {PREALLOCATE: "false", FRACTION: "0.5", "CUDA_VISIBLE_DEVICES": shown}

    told, held = on(machine, on_machine.figures, 1, env=settings)

    number = int(shown[-1])
    [(uuid, ours)] = told.items()
    in_use, pool, limit = (figure.size for figure in ours if not figure.peak)
    assert uuid == machine.gpus()[number].uuid
    assert [*jax(in_use, pool, limit)] == [replace(figure, size=in_use) if figure.peak else figure for figure in ours]
    assert [figure.size for figure in ours if figure.peak] == [128 * MIB] == [2 * in_use]
    assert pool == held[number] - CONTEXT
    assert part(machine, 0.5) - PAGE < limit <= part(machine, 0.5)


def test_a_gpu_that_jax_itself_was_told_to_use_is_known(machine: Machine) -> None:
    told, held = on(machine, on_machine.figures, 0, "1")

    assert list(told) == [machine.gpus()[1].uuid]
    assert held[0] == 0


def test_it_compiles_and_runs_kernels_that_compute_nothing(machine: Machine) -> None:
    assert on(machine, on_machine.computed, env={PREALLOCATE: "false"}) == (["gpu"], 0.0)


def test_its_arrays_are_found_by_name(machine: Machine) -> None:
    found, unaccounted = run(machine, on_machine.by_name, fresh=True)

    assert found == {"x": 64, "pair['a'][0]": 32}
    assert unaccounted == [("cuda:0", 0), ("cuda:1", 0)]


def test_its_arrays_and_random_keys_come_out_of_a_call_as_numpys(machine: Machine) -> None:
    came, keys, drawn = on(machine, on_machine.brought, env={"JAX_PLATFORMS": "cpu"})

    assert came == [("ndarray", name, [1.0, 2.0], 3.0) for name in on_machine.KINDS]
    assert keys == [("ndarray", "uint32", (2,)), ("ndarray", "uint32", (3, 2))]
    assert drawn


@pytest.mark.parametrize("below", [False, True])
def test_a_share_of_the_drivers_limit_is_the_same_in_its_cgroup_and_below_it(below: bool) -> None:
    with cgroup2() as limited, Machine.create("16GiB") as machine:
        machine.set_driver("615.71.09")
        inside = limited / "below" if below else limited
        inside.mkdir(exist_ok=True)
        for _ in range(2):  # of a virgin cgroup, it may be refused once
            refused = run(machine, set_limits, limited, 0, 4 * GIB, fresh=True)
        held = on(machine, on_machine.within, inside, "limit 40%")

    assert refused is None
    assert 0.4 * 4 * GIB - 64 * MIB < held[0] - CONTEXT <= 0.4 * 4 * GIB
