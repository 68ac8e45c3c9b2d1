"""Plans, on GPUs that are only data: what the simulated machine cannot show, or not as quickly.

Which GPUs a plan takes and how much of them, what it notes, and what is refused; `test_refusal` has how that is told.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.sizes import GIB, MIB
from tfgpu_magic.errors import Refused, TooLate
from tfgpu_magic.ground.message import Severity
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.policy.ceiling import read
from tfgpu_magic.policy.decide import decide, least
from tfgpu_magic.policy.parser import parse
from tfgpu_magic.policy.plan import Plan
from tfgpu_magic.policy.policy import NOTHING
from tfgpu_magic.policy.process_state import DEVICES, ProcessState, Stage


def gpu(index: int, free: float = 7.5, total: int = 8, **more: Any) -> Gpu:
    return Gpu(index=index, uuid=f"GPU-{index}", name="T", total=total * GIB, free=int(free * GIB), **more)


def snapshot(*gpus: Gpu, **more: Any) -> Snapshot:
    return Snapshot(time=0.0, gpus=gpus, **more)


def kernel(*gpus: Gpu, **more: Any) -> ProcessState:
    return ProcessState(shown=tuple(str(gpu.uuid) for gpu in gpus), **more)


def planned(words: str, *gpus: Gpu, **more: Any) -> Plan:
    """Plan words in a kernel that CUDA shows these GPUs, unless more is said of it."""
    shown = more.pop("shown", tuple(str(gpu.uuid) for gpu in gpus))
    return decide(parse(words), snapshot(*gpus), ProcessState(shown=shown, **more))


def after(words: str, *gpus: Gpu, **more: Any) -> dict[str, Any]:
    """Return the state of a process in which these words are in force on these GPUs."""
    made = planned(words, *gpus, **more)
    return {"asked": made.asked, "settled": made.settled}


def does(plan: Plan) -> dict[str, Any]:
    """Return what a plan does, as data."""
    return {
        "asked": str(plan.asked),
        "settled": str(plan.settled),
        "sees": [device.gpu.label for device in plan.devices],
        "cuda": plan.environment.get(DEVICES, ""),
        "limits": [device.limits for device in plan.devices],
        "takes": list(map(plan.takes, plan.devices)),
        "releases": plan.releases,
        "notes": len(plan.notes),
    }


def check(plan: Plan, expected: dict[str, Any]) -> None:
    """Compare what a plan does, as far as it is expected."""
    assert {name: value for name, value in does(plan).items() if name in expected} == expected


FOUR = (gpu(0, 1), gpu(1, 7), gpu(2, 7.5), gpu(3, 7))
MIG = (
    gpu(0, mig=True),
    Gpu(index=0, instance=1, uuid="MIG-aaaa", total=10 * GIB, free=1 * GIB),
    Gpu(index=0, instance=2, uuid="MIG-bbbb", total=10 * GIB, free=9 * GIB),
)
INSTANCE = {"shown": ("MIG-aaaa",)}
LOST = gpu(0, lost=True, error="the GPU is lost. Others go on")
SHIFTED = (gpu(0, 1), gpu(1, lost=True, error="the GPU is lost"), gpu(2))
NO_DRIVER = "There is no NVIDIA driver here."
UNKNOWN = Gpu(index=0, uuid="GPU-0")
UNEQUAL = (gpu(0, 7.8), gpu(1, 8), gpu(2, 8), gpu(3, 7.99))
CLAIMED = (gpu(0, 7.5), gpu(1, 7.4), gpu(2, 7.45), gpu(3, 4))
LOTS = {"GPU-0": 0.1, "GPU-1": 1.2, "GPU-2": 0.5, "GPU-3": 0.3}
GIVEN = {"shown": ("GPU-0",), "outside": {DEVICES: "0"}}
"""Of four GPUs, a scheduler gave the first."""


@pytest.mark.parametrize(
    ("words", "gpus", "here", "expected"),
    [
        ("pick", FOUR, {}, {"sees": ["2"]}),
        ("pick 2", FOUR, {}, {"sees": ["2", "1"]}),
        ("pick 3 --need 6GiB", FOUR, {}, {"sees": ["2", "1", "3"]}),
        ("pick --or-cpu; limit 1GiB", FOUR, {}, {"sees": ["2"]}),
        ("visible 3,2", FOUR, {}, {"sees": ["3", "2"]}),
        ("visible none", FOUR, {}, {"sees": []}),
        ("visible GPU-1", FOUR, {}, {"sees": ["1"]}),
        ("visible all", FOUR, GIVEN, {"sees": ["0", "1", "2", "3"], "cuda": None}),
        ("limit 512MiB", FOUR, {}, {"sees": ["0", "1", "2", "3"]}),
        # Of GPUs that are as free, those with fewest others; lots are drawn only where nobody else is.
        ("pick 2", CLAIMED, {"claims": {"GPU-0": 1.0, "GPU-2": 2.0}}, {"sees": ["1", "0"]}),
        ("pick 4", UNEQUAL, {"claims": LOTS}, {"sees": ["2", "3", "0", "1"]}),
        ("pick", MIG, INSTANCE, {"sees": ["0.2"]}),
        ("pick --need 4GiB", MIG, INSTANCE, {"sees": ["0.2"]}),
        ("visible 0.2; limit 0.2=1GiB", MIG, INSTANCE, {"sees": ["0.2"], "cuda": "MIG-bbbb", "limits": [(GIB,)]}),
        # Where a scheduler gave one, no other is picked.
        ("pick", MIG, {**INSTANCE, "outside": {DEVICES: "MIG-aaaa"}}, {"sees": ["0.1"]}),
        # A lost GPU that is hidden hinders nothing; the others are named by UUID, as it may shift numbers.
        ("visible 1; growth", (LOST, gpu(1)), {}, {"takes": ["growth"]}),
        ("visible 2; limit 1GiB", SHIFTED, {"shown": ("GPU-0", "GPU-2")}, {"cuda": "GPU-2"}),
        ("pick; growth", SHIFTED, {"shown": ("GPU-0", "GPU-2")}, {"cuda": "GPU-2"}),
        # Figures that the driver does not give are not checked.
        ("limit 1GiB", (UNKNOWN,), {}, {"limits": [(GIB,)]}),
        ("limit 1GiB", (gpu(0, listed=False, error="no list of processes"),), {}, {"limits": [(GIB,)]}),
        # What was picked is not picked again, and a later order does not hide what earlier words named.
        ("limit 1GiB", (gpu(0, 1), gpu(1, 7), gpu(2, 3)), after("pick", *FOUR), {"asked": "pick; limit 1GiB"}),
        ("limit 1GiB", (gpu(0, 1), gpu(1, 7), gpu(2, 3)), after("pick", *FOUR), {"sees": ["2"]}),
        (
            "visible 1,2",
            FOUR,
            {"shown": ("GPU-0",), **after("visible 2,1; limit 1=1GiB", *FOUR, **GIVEN)},
            {"sees": ["1", "2"], "limits": [(GIB,), ()]},
        ),
        ("visible 1", FOUR, after("limit 0=512MiB 1=1GiB", *FOUR), {"asked": "limit 1=1GiB; visible 1"}),
        # Where no GPU can be picked the CPU goes on, if that is said.
        *(
            (words, gpus, {}, {"sees": [], "cuda": "-1", "settled": "visible none"})
            for words, gpus in [
                ("pick --or-cpu", (gpu(0, 0.1), gpu(1, 0.2))),
                ("pick 2 --or-cpu", (gpu(0, 0.1), gpu(1, 7))),
                ("pick --need 7.4GiB --or-cpu", (gpu(0, 0.1), gpu(1, 7))),
            ]
        ),
        ("visible 0", (gpu(0),), {"keras": "jax"}, {"notes": 0}),
    ],
)
def test_what_a_plan_does(words: str, gpus: tuple[Gpu, ...], here: dict[str, Any], expected: dict[str, Any]) -> None:
    check(planned(words, *gpus, **here), expected)


@pytest.mark.parametrize(
    ("words", "gpus", "here", "noted"),
    [
        ("growth", (gpu(0),), {"frozen": True, "neighbour": "torch"}, "torch already uses a GPU in this kernel;"),
        ("limit 1GiB", (Gpu(index=0, uuid="GPU-0", total=8 * GIB),), {}, "What is free on GPU 0 is unknown here"),
        ("growth", (gpu(0),), {"old": "2.15.1"}, "TensorFlow 2.15.1 is older than 2.16"),
        ("limit 2GiB", (gpu(0),), {"keras": "jax"}, "Keras' backend is jax here"),
        ("growth", (gpu(0),), {"keras": "jax"}, "Keras' backend is jax here"),
        ("visible 1", FOUR, after("limit 0=512MiB 1=1GiB", *FOUR), "`limit 0=512MiB` no longer counts."),
        *(
            (words, (gpu(0, 0.1), gpu(1, 7)), {}, "TensorFlow uses the CPU.")
            for words in ("pick 2 --or-cpu", "pick --need 7.4GiB --or-cpu")
        ),
        ("visible 1", (gpu(0, 0.1), gpu(1)), {"stage": Stage.LISTED}, "may hang at the next one"),
        ("limit 99%", (gpu(0, 80, 80, capability=(8, 0)),), {}, "Warning: of GPU 0 this leaves"),
        ("split 39GiB 40GiB", (gpu(0, 80, 80, capability=(8, 0)),), {}, "Warning: of GPU 0 this leaves"),
    ],
)
def test_what_to_know_of_a_plan_is_noted(words: str, gpus: tuple[Gpu, ...], here: dict[str, Any], noted: str) -> None:
    assert noted in "\n".join(map(str, planned(words, *gpus, **here).notes))


def test_a_cap_that_has_no_room_yet_blames_nobody() -> None:
    notes = map(str, planned("limit 4GiB --grow", gpu(0, 2, used=6 * GIB)).notes)
    (note,) = [one for one in notes if "So much" in one]

    assert note.splitlines()[-1].startswith("So much is not free now. GPU 0: the limit is 4 GiB")


@pytest.mark.parametrize(
    ("words", "gpus", "here", "silent"),
    [
        ("visible 1", (gpu(0, 0.1), gpu(1)), {"stage": Stage.ABSENT}, "may hang"),
        ("visible 1", (gpu(0, 0.1), gpu(1)), {"stage": Stage.IMPORTED}, "may hang"),
        ("pick --or-cpu; limit 1GiB", FOUR, {}, "CPU"),
        *((words, (gpu(0, 80, 80, capability=(8, 0)),), {}, "Warning") for words in ("limit 97%", "limit 99% --grow")),
    ],
)
def test_nobody_is_warned_of_what_is_no_danger(
    words: str, gpus: tuple[Gpu, ...], here: dict[str, Any], silent: str
) -> None:
    assert silent not in "\n".join(map(str, planned(words, *gpus, **here).notes))


@pytest.mark.parametrize("words", ["growth", "limit 1GiB", "split 2", "split 4 --cpu", "visible all", "visible none"])
def test_without_a_gpu_the_words_do_no_harm(words: str) -> None:
    plan = decide(parse(words), snapshot(error=NO_DRIVER, absent=True), ProcessState())

    assert [*map(str, plan.notes)] == ["There is no NVIDIA driver here. TensorFlow will run on the CPU."]


@pytest.mark.parametrize("absent", [True, False])
def test_words_for_the_cpu_go_on_where_there_is_no_gpu_or_none_is_known(absent: bool) -> None:
    made = decide(parse("pick --or-cpu; growth"), snapshot(error=NO_DRIVER, absent=absent), ProcessState())

    assert made.environment[DEVICES] == "-1"
    assert any(str(note).endswith("TensorFlow uses the CPU.") for note in made.notes)


def test_while_the_driver_hangs_growth_can_be_had() -> None:
    plan = decide(parse("growth"), snapshot(error="NVML did not answer within 1.5 s."), ProcessState())

    assert plan.environment["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    assert not plan.acts_on_nothing  # there may be GPUs


@pytest.mark.parametrize(
    ("asked", "words", "in_force"),
    [
        ("limit 1GiB", "limit 1GiB", True),
        ("limit 1GiB", "default; limit 1GiB", True),
        ("limit 0=1GiB; limit 1=2GiB", "limit 0=1GiB", True),
        ("visible 0; growth", "growth; visible 0", True),
        ("visible 0; limit 1GiB", "limit 1GiB", True),
        ("visible 0; limit 1GiB", "visible 0", True),
        ("pick; limit 1GiB", "pick", True),
        ("", "default", True),
        # What would replace others is not.
        ("limit 2GiB; limit 0=1GiB", "limit 2GiB", False),
        ("split 2; split 1GiB 1GiB --gpu 0", "split 2", False),
        ("limit GPU-0000=2GiB; limit 0=1GiB", "limit GPU-0000=2GiB", False),
        ("growth; split 2 --cpu", "default", False),
    ],
)
def test_words_that_change_nothing_are_in_force_already(asked: str, words: str, in_force: bool) -> None:
    before = parse(asked) if asked else NOTHING
    ready = kernel(gpu(0), stage=Stage.READY, asked=before, settled=before)
    if in_force:
        plan = decide(parse(words), snapshot(gpu(0, 1)), ready)

        assert (plan.in_force, plan.asked) == (True, before)
    else:
        with pytest.raises(TooLate):
            decide(parse(words), snapshot(gpu(0)), ready)


def test_what_somebody_changed_since_is_not_in_force() -> None:
    asked = parse("limit 1GiB")
    state = kernel(gpu(0), stage=Stage.READY, asked=asked, settled=asked, changed=("the limit of GPU 0 is 4 GiB",))

    with pytest.raises(TooLate, match="it was changed since: the limit of GPU 0 is 4 GiB"):
        decide(asked, snapshot(gpu(0, 1)), state)


@pytest.mark.parametrize(("total", "megabytes"), [(4, 256), (8, 256), (12, 384), (16, 512), (80, 576)])
def test_room_for_a_context_grows_with_the_gpu_within_bounds(total: int, megabytes: int) -> None:
    device = gpu(0, free=total, total=total)
    most = total * GIB - megabytes * MIB

    assert planned(f"limit {most // MIB}MiB", device).limited
    with pytest.raises(Refused):
        planned(f"limit {most // MIB + 1}MiB", device)


@pytest.mark.parametrize(
    ("capability", "reserve"), [((6, 1), 500), ((7, 5), 1050), ((8, 0), 1536), ((9, 0), 1800), (None, 1800)]
)
def test_equal_shares_leave_what_tensorflow_leaves_to_its_libraries(
    capability: tuple[int, int] | None, reserve: int
) -> None:
    plan = planned("split 2", gpu(0, 80, 80, capability=capability))

    assert plan.devices[0].limits == ((80 * 1024 - 576 - reserve) // 2 * MIB,) * 2
    assert not any(note.severity is Severity.WARNING for note in plan.notes)


@pytest.mark.parametrize(
    ("plan", "hides"),
    [
        (planned("growth", *FOUR).hiding_all(), True),  # as Keras' other backends have it
        (planned("visible none", *FOUR, frozen=True), True),
        (planned("visible none", *FOUR), False),  # the variable hides them from every framework
        (least(parse("growth"), read("limit 1GiB"), frozen=True), True),
        (least(parse("growth"), read("limit 1GiB")), False),
    ],
)
def test_a_plan_knows_whether_tensorflows_own_api_hides_all_gpus(plan: Plan, hides: bool) -> None:
    assert plan.hidden is hides
