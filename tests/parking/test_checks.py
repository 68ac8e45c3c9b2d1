"""Each reason not to park a process is found from its own fact, and travels; the facts of a good case give none."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import GIB, MIB
from tfgpu_magic.model.report import HeldMemory
from tfgpu_magic.model.snapshot import Gpu
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.checks import ROOM_MARGIN, Inside, ParkFacts, host_margin, needed, refusals, shortages
from tfgpu_magic.parking.messages import ANSWER, ParkOutcome, Room

GPU = Gpu(index=0, uuid="GPU-0", total=16 * GIB, reserved=256 * MIB, used=6 * GIB, free=10 * GIB)
GOOD = ParkFacts(
    driver="580.65.06",
    open_module=False,
    architecture="x86_64",
    gpus=(GPU,),
    held=(HeldMemory("GPU-0", 6 * GIB),),
    mappings=1,
    host=64 * GIB,
    inside=Inside(),
)


@pytest.mark.parametrize(
    "facts",
    [
        GOOD,
        replace(GOOD, inside=Inside(nvml=False)),  # which ends a process on a newer driver
        replace(GOOD, driver="610.10"),
        replace(GOOD, inside=Inside(libraries=("/usr/lib/libcuda.so.580.65.06",))),  # the driver's own
        replace(GOOD, inside=Inside(libraries=("/simulated/libcuda.so.1",))),
        replace(GOOD, open_module=True, inside=Inside(allow_open_module=True)),  # administrators may allow it
        replace(GOOD, most=9 * GIB, others=3 * GIB),  # enough to the byte
    ],
)
def test_an_idle_notebook_on_a_good_machine_may_be_parked(facts: ParkFacts) -> None:
    assert refusals(facts) == ()


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (replace(GOOD, error="NVML does not answer."), why.NO_DRIVER("NVML does not answer.")),
        (replace(GOOD, driver="570.86.10"), why.OLD_DRIVER("570.86.10", "580")),
        (replace(GOOD, driver=None), why.OLD_DRIVER("", "580")),
        (replace(GOOD, open_module=True), why.OPEN_MODULE("580.65.06")),
        (replace(GOOD, open_module=None), why.UNKNOWN_MODULE()),
        (replace(GOOD, architecture="aarch64"), why.OTHER_ARCHITECTURE("aarch64")),
        (replace(GOOD, gpus=(GPU._replace(instance=1),)), why.MIG_GPU("0.1")),
        (replace(GOOD, gpus=(GPU._replace(mig=True),)), why.MIG_GPU("0")),
        (replace(GOOD, gpus=(GPU._replace(unified=True),)), why.UNIFIED_MEMORY("0")),
        (replace(GOOD, gpus=(), held=()), why.HOLDS_NOTHING()),
        (replace(GOOD, gpus=(), held=(), unlisted=True), why.UNLISTED()),
        (replace(GOOD, held=(None,)), why.HELD_UNKNOWN("0")),
        (replace(GOOD, mappings=2), why.MANAGED_MEMORY()),
        (replace(GOOD, mappings=None), why.MANAGED_MEMORY()),
        (replace(GOOD, driver="610.10", inside=Inside(nvml=False)), why.NVML_UNLOADED("610.10")),
        (replace(GOOD, gpus=(GPU._replace(exclusive=True),)), why.EXCLUSIVE("0")),
        (replace(GOOD, gpus=(GPU, GPU), held=(HeldMemory("GPU-0", GIB),) * 2), why.SEVERAL_GPUS()),
        (replace(GOOD, mps=True), why.MPS()),
        (replace(GOOD, mps=True, inside=Inside(against=(why.MPS(),))), why.MPS()),
        *(
            (replace(GOOD, inside=Inside(libraries=files)), why.INTERCEPTED(files))
            for files in (("/a/libcuda.so.1", "/b.so"), ("/compat/libcuda.so.590.1",), ("/vgpu.so",))
        ),
        (replace(GOOD, children=(7, 9)), why.CHILDREN((7, 9))),
        (replace(GOOD, host=5 * GIB), why.HOST_MEMORY(6 * GIB, 5 * GIB)),
        (replace(GOOD, host=None), why.HOST_MEMORY(6 * GIB, None)),
        (replace(GOOD, most=8 * GIB, others=3 * GIB), why.USERS_MEMORY(8 * GIB, 3 * GIB)),
        (replace(GOOD, inside=Inside(against=(why.THREADS(("loader",)),))), why.THREADS(("loader",))),
    ],
)
def test_a_reason_is_found_by_itself_with_its_facts(facts: ParkFacts, expected: why.Refusal) -> None:
    assert refusals(facts) == (expected,)


def test_every_reason_is_said_at_once() -> None:
    found = refusals(replace(GOOD, open_module=True, children=(7,), inside=Inside(against=(why.BUSY(), why.NCCL()))))

    assert {one.reason for one in found} == {why.OPEN_MODULE, why.CHILDREN, why.BUSY, why.NCCL}


@given(size=st.integers(1, 16 * GIB), free=st.none() | st.integers(0, 16 * GIB))
def test_what_could_not_surely_come_back_does_not_go(size: int, free: int | None) -> None:
    """The margin, and the context of what takes the room, must fit beside it in what other users leave of the GPU."""
    room = min(16 * GIB - 256 * MIB, 16 * GIB if free is None else free)
    refused = refusals(replace(GOOD, gpus=(GPU._replace(free=free),), held=(HeldMemory("GPU-0", size),)))

    assert needed(size, GPU) >= size + ROOM_MARGIN
    if needed(size, GPU) <= room:
        assert refused == ()
    else:
        assert refused == (why.NO_WAY_BACK("0", needed(size, GPU), room),)


@pytest.mark.parametrize(("total", "margin"), [(8, 4), (40, 4), (512, 51.2)])
def test_a_part_of_the_hosts_memory_is_left_for_others(total: int, margin: float) -> None:
    assert host_margin(total * GIB) == int(margin * GIB)


@pytest.mark.parametrize(("free", "more"), [(4 * GIB, 0), (GIB, 0), (512 * MIB, needed(0, GPU) - 512 * MIB)])
def test_what_is_missing_by_todays_figures_is_told_beside_that_it_may_be_parked(free: int, more: int) -> None:
    """What this user's other processes hold can be given back, and counts as free only for whether it is refused."""
    facts = replace(GOOD, free=(free,))

    assert refusals(facts) == ()
    assert shortages(facts) == ((why.MORE_NEEDED("0", more),) if more else ())


ALL = [
    why.NO_DRIVER("x"), why.OLD_DRIVER("1", "580"), why.CHILDREN((1, 2)), why.HOST_MEMORY(1, None), why.THREADS(("a",)),
    why.NO_WAY_BACK("0", 2, None), why.LOST(), why.UNANSWERED("lock"), why.DECLINED("lock", 401),
    why.NVML_UNLOADED("610.10"), why.ERROR("It fails."),
]  # fmt: skip


@pytest.mark.parametrize("fields", [{}, {"refusal": "nonsense", "values": []}, {"refusal": "lost", "values": [1]}])
def test_what_is_no_refusal_is_a_value_error(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a refusal"):
        why.from_json(fields)


def test_an_outcome_is_told_as_what_json_can_hold() -> None:
    said = ParkOutcome(refusals=tuple(ALL), notes=(why.CANCELLED(),))
    told = json.loads(json.dumps(said._repr_mimebundle_()))

    assert ParkOutcome.from_answer(told[ANSWER]) == said


def test_what_is_missing_is_never_less_than_nothing() -> None:
    assert Room("GPU-0", "0", needed=7, free=5).short == 2
    assert Room("GPU-0", "0", needed=7, free=9).short == 0
    assert Room("GPU-0", "0", needed=7, free=None).short == 7
