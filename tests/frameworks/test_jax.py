"""The real JAX on the simulated machine: what its variables do, by the driver's account, and what we read of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

import tfgpu_magic
from tests.cgroups import cgroup2
from tests.figures import jax as figures_of_jax
from tests.frameworks.jax_on_machine import array, jax, within
from tests.processes import on, run
from tests.simgpu.on_machine import set_limits
from tests.sizes import CONTEXT, GIB, MIB
from tests.tf.on_machine import held, here, refused
from tests.waiting import until
from tfgpu_magic.frameworks import registry
from tfgpu_magic.frameworks.jax.framework import Jax
from tfgpu_magic.frameworks.jax.settings import ALLOCATOR, FORMER_FRACTION, FRACTION, PREALLOCATE, variables
from tfgpu_magic.frameworks.shortage import Shortage
from tfgpu_magic.insight.objects.tensors import tensors
from tfgpu_magic.isolate.values import pickling, plain
from tfgpu_magic.policy.process_state import Stage
from tfgpu_magic.simgpu import Machine

pytestmark = pytest.mark.frameworks

PAGE = 2 * MIB
"""What virtual memory management allocates in."""


def part(fraction: float) -> int:
    """Return a part of the total that CUDA tells of a GPU, in whole pages."""
    gpu = here().gpus()[0]
    return -(int((gpu.total - gpu.reserved) * fraction) // -PAGE) * PAGE


def given(environment: Mapping[str, str | None]) -> None:
    """Have these variables be set."""
    os.environ.update({name: value for name, value in environment.items() if value is not None})


def fill() -> tuple[int, Exception]:
    """Allocate until JAX refuses; return the bytes given, and the error."""
    kept: list[Any] = []
    try:
        while True:
            kept.append(array(64))
    except Exception as error:
        return len(kept) * 64 * MIB, error


@on("2x2GiB", fresh=True)
def test_by_default_it_takes_three_quarters_at_its_first_array_and_gives_nothing_back() -> None:
    one = Jax()
    assert (one.stage(), held()) == (Stage.ABSENT, [0, 0])
    module = jax()
    assert (one.stage(), held()) == (Stage.IMPORTED, [0, 0])
    module.devices()
    assert (one.stage(), held()) == (Stage.READY, [CONTEXT, CONTEXT])
    kept = array(64)
    assert held() == [part(0.75) + CONTEXT, CONTEXT]
    del kept
    assert held() == [part(0.75) + CONTEXT, CONTEXT]


@on("2x2GiB", fresh=True, env={"JAX_PLATFORMS": "cpu"})
def test_on_the_cpu_alone_it_leaves_the_gpus_alone() -> None:
    jax().devices()

    assert (Jax().stage(), held()) == (Stage.IMPORTED, [0, 0])


@pytest.mark.parametrize("name", [FRACTION, FORMER_FRACTION])
@on("2GiB", "1GiB@0", fresh=True)
def test_a_fraction_is_of_the_total_and_taken_at_once_also_where_others_hold_memory(name: str) -> None:
    given({name: "0.3"})
    array(64)

    assert held() == [part(0.3) + CONTEXT]


@on("2x2GiB", fresh=True)
def test_with_preallocation_off_it_grows_and_the_fraction_is_a_cap() -> None:
    given(variables({"GPU-1": Decimal("0.2"), "GPU-2": Decimal("0.3")}, True, {}))
    kept = array(64)
    assert held() == [64 * MIB + CONTEXT, CONTEXT]
    del kept

    size, error = fill()

    assert part(0.2) - 64 * MIB < size <= held()[0] - CONTEXT <= part(0.2)
    assert registry.is_out_of_memory(error), error
    assert registry.shortage(error) == Shortage(framework="JAX", size=64 * MIB)


@pytest.mark.parametrize(
    ("words", "size"), [("limit 1GiB", GIB), ("limit 1GiB --grow", 64 * MIB), ("growth", 64 * MIB)]
)
@pytest.mark.parametrize("imported", [True, False])
@on("2x2GiB", fresh=True)
def test_it_takes_what_the_words_say_before_its_import_and_after(words: str, size: int, imported: bool) -> None:
    if imported:
        jax()
    tfgpu_magic.apply(words, frameworks="all")
    kept = array(64)

    assert size - PAGE < held()[0] - CONTEXT <= size
    assert kept.shape


@on("2x2GiB", fresh=True)
def test_once_it_has_listed_its_gpus_it_is_too_late_and_nothing_changes() -> None:
    jax().devices()

    assert refused("limit 1GiB", "all").startswith("Not applied. JAX is already using a GPU")
    array(64)
    assert held()[0] == part(0.75) + CONTEXT


@on("2x2GiB", fresh=True, env={FRACTION: "0.2", ALLOCATOR: "cuda_async"})
def test_another_allocator_takes_no_notice_of_the_fraction() -> None:
    assert fill()[0] > 2 * part(0.2)


@pytest.mark.parametrize("mended", [False, True])
@on("2x2GiB", fresh=True)
def test_both_names_of_the_fraction_cost_it_its_gpus(mended: bool) -> None:
    both = {FRACTION: "0.2", FORMER_FRACTION: "0.3"}
    given(both | variables({"GPU-1": Decimal("0.2")}, False, both) if mended else both)
    jax().devices()

    assert ("cuda" in sys.modules["jax._src.xla_bridge"]._backends) is mended


@pytest.mark.parametrize("shown", ["0,1", "1,0"])
@on("2x2GiB", fresh=True)
def test_its_figures_are_those_of_the_gpu_that_it_has_used(shown: str) -> None:
    given({PREALLOCATE: "false", FRACTION: "0.5", "CUDA_VISIBLE_DEVICES": shown})
    number = int(shown[-1])
    kept = [array(64, 1), array(64, 1)]
    kept.pop()
    # What is deleted comes back a moment later.
    device = jax().devices()[1]
    until(lambda: device.memory_stats()["bytes_in_use"], lambda used: used == 64 * MIB)

    [(uuid, ours)] = registry.figures().items()

    in_use, pool, limit = (figure.size for figure in ours if not figure.peak)
    assert uuid == here().gpus()[number].uuid
    assert [figure.size for figure in ours if figure.peak] == [128 * MIB] == [2 * in_use]
    assert [*figures_of_jax(in_use, pool, limit)] == [
        replace(figure, size=in_use) if figure.peak else figure for figure in ours
    ]
    assert pool == held()[number] - CONTEXT
    assert part(0.5) - PAGE < limit <= part(0.5)


@on("2x2GiB", fresh=True)
def test_a_gpu_that_jax_itself_was_told_to_use_is_known() -> None:
    jax().config.update("jax_cuda_visible_devices", "1")
    kept = array(64)

    assert [*registry.figures()] == [here().gpus()[1].uuid]
    assert held()[0] == 0
    assert kept.shape


@on("2x2GiB", fresh=True, env={PREALLOCATE: "false"})
def test_it_compiles_and_runs_kernels_that_compute_nothing() -> None:
    result = jax().jit(lambda x: x * 2 + 1)(array(1))

    assert ([device.platform for device in result.devices()], float(result[0])) == (["gpu"], 0.0)


@on("2x2GiB", fresh=True)
def test_its_arrays_are_found_by_name() -> None:
    main: Any = sys.modules["__main__"]
    main.x, main.pair = array(64), {"a": [array(32, 1)]}

    taken = tensors()

    assert {one.name.expression: one.size // MIB for one in taken.holdings} == {"x": 64, "pair['a'][0]": 32}
    assert [(account.device, account.unaccounted) for account in taken.accounts] == [("cuda:0", 0), ("cuda:1", 0)]


@on("2x2GiB", fresh=True, env={"JAX_PLATFORMS": "cpu"})
def test_its_arrays_and_random_keys_come_out_of_a_call_as_numpys() -> None:
    kinds = ("float32", "bfloat16", "float8_e4m3fn", "int4")
    random, numpy = jax().random, jax().numpy
    key = random.key(5)
    arrays = [numpy.array(content, kind) for kind in kinds for content in ([1, 2], 3)]

    there = pickling.dump_self_contained([*arrays, key, random.split(key, 3)], reduce=plain.reduce)
    *came, one, several = pickling.load([memoryview(bytearray(part)) for part in there.parts])

    assert {type(data).__name__ for data in (*came[::2], one, several)} == {"ndarray"}
    assert [(large.dtype.name, [*map(float, large)]) for large in came[::2]] == [(kind, [1.0, 2.0]) for kind in kinds]
    assert [float(scalar) for scalar in came[1::2]] == [3.0] * len(kinds)
    assert [(data.dtype.name, data.shape) for data in (one, several)] == [("uint32", (2,)), ("uint32", (3, 2))]
    assert bool(random.bits(random.wrap_key_data(one)) == random.bits(key))


@pytest.mark.parametrize("below", [False, True])
def test_a_share_of_the_drivers_limit_is_the_same_in_its_cgroup_and_below_it(below: bool) -> None:
    with cgroup2() as limited, Machine.create("16GiB") as machine:
        machine.set_driver("615.71.09")
        inside = limited / "below" if below else limited
        inside.mkdir(exist_ok=True)
        for _ in range(2):  # of a virgin cgroup, it may be refused once
            refused = run(machine, set_limits, limited, 0, 4 * GIB, fresh=True)
        (size,) = run(machine, within, inside, "limit 40%", fresh=True)

    assert refused is None
    assert 0.4 * 4 * GIB - 64 * MIB < size - CONTEXT <= 0.4 * 4 * GIB
