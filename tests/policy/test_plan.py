"""Plans, on GPUs that are only data: what the simulated machine cannot show, or not as quickly.

Which GPUs a plan takes and how much of them, what it notes, and what is refused; `test_refusal` has how that is told.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.sizes import GIB, MIB
from tfgpu_magic.errors import Refused, TooLate
from tfgpu_magic.model.snapshot import Gpu, Snapshot
from tfgpu_magic.policy import fallback
from tfgpu_magic.policy.ceiling import read
from tfgpu_magic.policy.parser import parse
from tfgpu_magic.policy.plan import Plan, make
from tfgpu_magic.policy.policy import NOTHING
from tfgpu_magic.policy.process_state import ProcessState, Stage


def gpu(index: int, free: float = 7.5, total: int = 8, **more: Any) -> Gpu:
    return Gpu(index=index, uuid=f"GPU-{index}", name="T", total=total * GIB, free=int(free * GIB), **more)


def snapshot(*gpus: Gpu, **more: Any) -> Snapshot:
    return Snapshot(time=0.0, gpus=gpus, **more)


def kernel(*gpus: Gpu, **more: Any) -> ProcessState:
    return ProcessState(shown=tuple(str(gpu.uuid) for gpu in gpus), **more)


def planned(words: str, *gpus: Gpu, **more: Any) -> Plan:
    """Plan words in a kernel that CUDA shows these GPUs, unless more is said of it."""
    shown = more.pop("shown", tuple(str(gpu.uuid) for gpu in gpus))
    return make(parse(words), snapshot(*gpus), ProcessState(shown=shown, **more))


def labels(plan: Plan) -> list[str]:
    return [device.gpu.label for device in plan.devices]


FOUR = (gpu(0, 1), gpu(1, 7), gpu(2, 7.5), gpu(3, 7))
MIG = (
    gpu(0, mig=True),
    Gpu(index=0, instance=1, uuid="MIG-aaaa", total=10 * GIB, free=1 * GIB),
    Gpu(index=0, instance=2, uuid="MIG-bbbb", total=10 * GIB, free=9 * GIB),
)
LOST = gpu(0, lost=True, error="the GPU is lost. Others go on")
NO_DRIVER = "There is no NVIDIA driver here."
UNEQUAL = (gpu(0, 7.8), gpu(1, 8), gpu(2, 8), gpu(3, 7.99))
LOTS = {"GPU-0": 0.1, "GPU-1": 1.2, "GPU-2": 0.5, "GPU-3": 0.3}


@pytest.mark.parametrize(
    ("words", "gpus", "here", "seen"),
    [
        ("pick", FOUR, {}, ["2"]),
        ("pick 2", FOUR, {}, ["2", "1"]),
        ("pick 3 --need 6GiB", FOUR, {}, ["2", "1", "3"]),
        ("visible 3,2", FOUR, {}, ["3", "2"]),
        ("visible none", FOUR, {}, []),
        ("visible GPU-1", FOUR, {}, ["1"]),
        ("limit 512MiB", FOUR, {}, ["0", "1", "2", "3"]),
        # Of GPUs that are as free, those with fewest others; lots are drawn only where nobody else is.
        (
            "pick 2",
            (gpu(0, 7.5), gpu(1, 7.4), gpu(2, 7.45), gpu(3, 4)),
            {"claims": {"GPU-0": 1.0, "GPU-2": 2.0}},
            ["1", "0"],
        ),
        ("pick 4", UNEQUAL, {"claims": LOTS}, ["2", "3", "0", "1"]),
        ("pick", MIG, {"shown": ("MIG-aaaa",)}, ["0.2"]),
        ("pick --need 4GiB", MIG, {"shown": ("MIG-aaaa",)}, ["0.2"]),
        ("visible 0.2; limit 0.2=1GiB", MIG, {"shown": ("MIG-aaaa",)}, ["0.2"]),
        # Where a scheduler gave one, no other is picked.
        ("pick", MIG, {"shown": ("MIG-aaaa",), "outside": {"CUDA_VISIBLE_DEVICES": "MIG-aaaa"}}, ["0.1"]),
    ],
)
def test_which_gpus_are_seen_and_in_which_order(
    words: str, gpus: tuple[Gpu, ...], here: dict[str, Any], seen: list[str]
) -> None:
    assert labels(planned(words, *gpus, **here)) == seen


def test_a_mig_instance_is_named_to_cuda_by_its_uuid_and_has_the_limit_that_it_is_named_for() -> None:
    plan = planned("visible 0.2; limit 0.2=1GiB", *MIG, shown=("MIG-aaaa",))

    assert plan.environment["CUDA_VISIBLE_DEVICES"] == "MIG-bbbb"
    assert [device.limits for device in plan.devices] == [(GIB,)]


@pytest.mark.parametrize(
    ("words", "gpus", "here", "told"),
    [
        ("growth", (LOST, gpu(1)), {}, "GPU 0: the GPU is lost"),
        ("limit 40%", (Gpu(index=0, uuid="GPU-0", unified=True),), {}, "GPU 0: the driver does not tell how much"),
        ("split 2", (Gpu(index=0, uuid="GPU-0", unified=True),), {}, "GPU 0: the driver does not tell how much"),
        ("visible 0,GPU-0", FOUR, {}, "named twice"),
        ("visible MIG-aaaa,MIG-bbbb", (*MIG, gpu(1)), {"shown": ("GPU-1",)}, "one MIG instance, and nothing beside it"),
        ("visible 1,MIG-aaaa", (*MIG, gpu(1)), {"shown": ("GPU-1",)}, "one MIG instance, and nothing beside it"),
        ("limit 1GiB --grow", (gpu(0, 0.1),), {}, "needs about 256 MiB for CUDA's context"),
        (
            "pick",
            (gpu(0), gpu(1, total=16)),
            {"shown": None, "outside": {"CUDA_VISIBLE_DEVICES": "1"}},
            "CUDA did not say in time which GPUs that leaves",
        ),
        (
            "limit 1GiB",
            (gpu(0, 7.9), gpu(1)),
            {"stage": Stage.LISTED, "frozen": True, "tensorflow_sees": ("GPU-0",), "skipped": ("GPU-0",)},
            "too few multiprocessors beside the others, or too old for its build",
        ),
        ("visible GPU-0", (Gpu(index=0, uuid="GPU-1f5c"), Gpu(index=1, uuid="GPU-0d1b")), {}, "GPU 0, write 0"),
        ("visible 0", MIG, {}, "GPU 0 is in MIG mode; name an instance of it: 0.1, 0.2."),
        ("visible 0; limit 1GiB", MIG, {}, "0.1, 0.2.\nFor those that are:   %tf_gpu limit 1GiB"),
        ("visible MIG-bbbb,MIG-cccc", MIG, {}, "For those that are:   %tf_gpu visible MIG-bbbb"),
        ("visible 0.1; limit 0.2=1GiB", MIG, {"shown": ("MIG-aaaa",)}, "Show it first:   %tf_gpu visible 0.2"),
        ("visible 0.7", MIG, {}, "There is no GPU 0.7 here; there are GPUs 0, 0.1 and 0.2."),
    ],
)
def test_what_cannot_be_is_refused(words: str, gpus: tuple[Gpu, ...], here: dict[str, Any], told: str) -> None:
    with pytest.raises(Refused) as refused:
        planned(words, *gpus, **here)

    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("words", "gpus", "here", "noted"),
    [
        (
            "growth",
            (gpu(0),),
            {"frozen": True, "neighbour": "torch"},
            "torch already uses a GPU in this kernel; what it takes comes on top of TensorFlow's limits.",
        ),
        (
            "limit 1GiB",
            (Gpu(index=0, uuid="GPU-0", total=8 * GIB),),
            {},
            "What is free on GPU 0 is unknown here, so whether it fits was not checked.",
        ),
        ("limit 4GiB --grow", (gpu(0, 2),), {}, "So much is not free now. GPU 0: the limit is 4 GiB"),
        ("growth", (gpu(0),), {"old": "2.15.1"}, "TensorFlow 2.15.1 is older than 2.16"),
        ("limit 2GiB", (gpu(0),), {"keras": "jax"}, "Keras' backend is jax here"),
        ("growth", (gpu(0),), {"keras": "jax"}, "Keras' backend is jax here"),
        ("visible 0", (gpu(0),), {"keras": "jax"}, ""),
    ],
)
def test_what_to_know_of_a_plan_is_noted(words: str, gpus: tuple[Gpu, ...], here: dict[str, Any], noted: str) -> None:
    notes = planned(words, *gpus, **here).notes

    assert noted in "\n".join(notes)
    assert noted or not notes


def test_a_cap_that_has_no_room_yet_blames_nobody() -> None:
    (note,) = [one for one in planned("limit 4GiB --grow", gpu(0, 2, used=6 * GIB)).notes if "So much" in one]

    assert note.splitlines()[-1].startswith("So much is not free now. GPU 0: the limit is 4 GiB")


def test_pick_is_settled_so_that_later_words_do_not_pick_again() -> None:
    first = planned("pick", *FOUR)
    busy = (gpu(0, 1), gpu(1, 7), gpu(2, 3), gpu(3, 7))

    then = planned("limit 1GiB", *busy, asked=first.asked, settled=first.settled)

    assert labels(then) == ["2"]
    assert str(then.asked) == "pick; limit 1GiB"


@pytest.mark.parametrize("words", ["growth", "limit 1GiB", "split 2", "split 4 --cpu", "visible all", "visible none"])
def test_without_a_gpu_the_words_do_no_harm(words: str) -> None:
    plan = make(parse(words), snapshot(error=NO_DRIVER, absent=True), ProcessState())

    assert plan.notes == ("There is no NVIDIA driver here. TensorFlow will run on the CPU.",)


@pytest.mark.parametrize("words", ["limit 0=1GiB", "pick", "visible 1", "split 2 --gpu 0"])
def test_without_a_gpu_words_that_name_one_are_refused(words: str) -> None:
    with pytest.raises(Refused, match="There is no NVIDIA driver here"):
        make(parse(words), snapshot(error=NO_DRIVER, absent=True), ProcessState())


def test_while_the_driver_hangs_growth_can_be_had_and_a_limit_cannot() -> None:
    hangs = snapshot(error="NVML did not answer within 1.5 s.")

    assert make(parse("growth"), hangs, ProcessState()).environment["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    assert not make(parse("growth"), hangs, ProcessState()).acts_on_nothing  # there may be GPUs
    with pytest.raises(Refused, match="did not answer"):
        make(parse("limit 1GiB"), hangs, ProcessState())


@pytest.mark.parametrize(
    "one",
    [Gpu(index=0, uuid="GPU-0"), gpu(0, listed=False, error="no list of processes: the driver gives no permission")],
)
def test_figures_that_the_driver_does_not_give_are_not_checked(one: Gpu) -> None:
    assert planned("limit 1GiB", one).devices[0].limits == (GIB,)


def test_a_lost_gpu_that_is_hidden_hinders_nothing() -> None:
    assert planned("visible 1; growth", LOST, gpu(1)).growth


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("limit 2GiB; limit 0=1GiB", "limit 2GiB"),
        ("split 2; split 1GiB 1GiB --gpu 0", "split 2"),
        ("limit GPU-0000=2GiB; limit 0=1GiB", "limit GPU-0000=2GiB"),
        ("growth; split 2 --cpu", "default"),
    ],
)
def test_words_that_would_replace_others_are_not_in_force_already(asked: str, words: str) -> None:
    ready = kernel(gpu(0), stage=Stage.READY, asked=parse(asked), settled=parse(asked))

    with pytest.raises(TooLate):
        make(parse(words), snapshot(gpu(0)), ready)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("limit 1GiB", "limit 1GiB"),
        ("limit 1GiB", "default; limit 1GiB"),
        ("limit 0=1GiB; limit 1=2GiB", "limit 0=1GiB"),
        ("visible 0; growth", "growth; visible 0"),
        ("visible 0; limit 1GiB", "limit 1GiB"),
        ("visible 0; limit 1GiB", "visible 0"),
        ("pick; limit 1GiB", "pick"),
        ("", "default"),
    ],
)
def test_words_that_change_nothing_are_in_force_already(asked: str, words: str) -> None:
    before = parse(asked) if asked else NOTHING
    plan = make(parse(words), snapshot(gpu(0, 1)), kernel(gpu(0), stage=Stage.READY, asked=before, settled=before))

    assert plan.in_force
    assert plan.asked == before


@pytest.mark.parametrize(("total", "megabytes"), [(4, 256), (8, 256), (12, 384), (16, 512), (80, 576)])
def test_room_for_a_context_grows_with_the_gpu_within_bounds(total: int, megabytes: int) -> None:
    device = gpu(0, free=total, total=total)
    most = total * GIB - megabytes * MIB

    make(parse(f"limit {most // MIB}MiB"), snapshot(device), kernel(device))
    with pytest.raises(Refused):
        make(parse(f"limit {most // MIB + 1}MiB"), snapshot(device), kernel(device))


def test_what_somebody_changed_since_is_not_in_force() -> None:
    asked = parse("limit 1GiB")
    state = kernel(gpu(0), stage=Stage.READY, asked=asked, settled=asked, changed=("the limit of GPU 0 is 4 GiB",))

    with pytest.raises(TooLate, match="it was changed since: the limit of GPU 0 is 4 GiB"):
        make(asked, snapshot(gpu(0, 1)), state)


def test_visible_all_leaves_the_choice_to_cuda() -> None:
    plan = make(parse("visible all"), snapshot(*FOUR), kernel(*FOUR[:1], outside={"CUDA_VISIBLE_DEVICES": "0"}))

    assert plan.environment["CUDA_VISIBLE_DEVICES"] is None
    assert labels(plan) == ["0", "1", "2", "3"]


def test_a_later_order_does_not_hide_what_earlier_words_named() -> None:
    given = kernel(*FOUR[:1], outside={"CUDA_VISIBLE_DEVICES": "0"})
    first = make(parse("visible 2,1; limit 1=1GiB"), snapshot(*FOUR), given)

    then = make(parse("visible 1,2"), snapshot(*FOUR), kernel(*FOUR[:1], asked=first.asked, settled=first.settled))

    assert [(device.gpu.label, device.limits) for device in then.devices] == [("1", (GIB,)), ("2", ())]


def test_words_for_a_gpu_that_is_hidden_later_are_dropped_for_good() -> None:
    first = planned("limit 0=512MiB 1=1GiB", *FOUR)

    then = planned("visible 1", *FOUR, asked=first.asked, settled=first.settled)

    assert str(then.asked) == "limit 1=1GiB; visible 1"
    assert "GPU 0 is hidden now, so `limit 0=512MiB` no longer counts." in then.notes


@pytest.mark.parametrize("words", ["pick --or-cpu", "pick 2 --or-cpu", "pick --need 7.4GiB --or-cpu"])
def test_where_no_gpu_can_be_picked_the_cpu_goes_on_if_that_is_said(words: str) -> None:
    gpus = (gpu(0, 0.1), gpu(1, 7)) if "2" in words or "need" in words else (gpu(0, 0.1), gpu(1, 0.2))
    made = planned(words, *gpus)

    assert (made.devices, made.environment["CUDA_VISIBLE_DEVICES"]) == ((), "-1")
    assert (str(made.asked), str(made.settled)) == (words, "visible none")
    assert any("cannot be had now" in note and note.endswith("TensorFlow uses the CPU.") for note in made.notes)


def test_it_goes_on_with_a_gpu_where_there_is_one() -> None:
    made = planned("pick --or-cpu; limit 1GiB", *FOUR)

    assert labels(made) == ["2"]
    assert not any("CPU" in note for note in made.notes)


@pytest.mark.parametrize("absent", [True, False])
def test_it_goes_on_on_the_cpu_where_there_is_no_gpu_or_none_is_known(absent: bool) -> None:
    nothing = snapshot(error=NO_DRIVER, absent=absent)
    made = make(parse("pick --or-cpu; growth"), nothing, ProcessState())

    assert made.environment["CUDA_VISIBLE_DEVICES"] == "-1"
    assert any(note.endswith("TensorFlow uses the CPU.") for note in made.notes)


@pytest.mark.parametrize("words", ["visible 2; limit 1GiB", "pick; growth"])
def test_gpus_are_named_by_uuid_where_a_lost_one_may_shift_numbers(words: str) -> None:
    gpus = (gpu(0, 1), Gpu(index=1, uuid="GPU-1", lost=True, error="the GPU is lost"), gpu(2))
    plan = make(parse(words), snapshot(*gpus), kernel(gpus[0], gpus[2]))

    assert plan.environment["CUDA_VISIBLE_DEVICES"] == "GPU-2"


@pytest.mark.parametrize(
    ("capability", "reserve"), [((6, 1), 500), ((7, 5), 1050), ((8, 0), 1536), ((9, 0), 1800), (None, 1800)]
)
def test_equal_shares_leave_what_tensorflow_leaves_to_its_libraries(
    capability: tuple[int, int] | None, reserve: int
) -> None:
    empty = gpu(0, 80, 80, capability=capability)

    plan = planned("split 2", empty)

    assert plan.devices[0].limits == ((80 * 1024 - 576 - reserve) // 2 * MIB,) * 2
    assert not any("Warning" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("words", "warned"),
    [
        ("limit 99%", True),
        ("split 39GiB 40GiB", True),
        ("limit 97%", False),
        ("limit 99% --grow", False),
        ("growth", False),
    ],
)
def test_a_limit_that_leaves_the_libraries_little_is_warned_of(words: str, warned: bool) -> None:
    empty = gpu(0, 80, 80, capability=(8, 0))

    notes = planned(words, empty).notes

    assert any("Warning: of GPU 0 this leaves" in note for note in notes) is warned


@pytest.mark.parametrize(
    ("plan", "hides"),
    [
        (planned("growth", *FOUR).hiding_all(), True),  # as Keras' other backends have it
        (planned("visible none", *FOUR, frozen=True), True),
        (planned("visible none", *FOUR), False),  # the variable hides them from every framework
        (fallback.least(parse("growth"), read("limit 1GiB"), frozen=True), True),
        (fallback.least(parse("growth"), read("limit 1GiB")), False),
    ],
)
def test_a_plan_knows_whether_tensorflows_own_api_hides_all_gpus(plan: Plan, hides: bool) -> None:
    assert plan.hidden is hides


def test_the_beginning_of_two_uuids_is_neither_gpu() -> None:
    alike = [gpu(n)._replace(uuid=f"GPU-ab{n}") for n in range(2)]

    with pytest.raises(Refused, match=r"GPU-ab may be any of 2 GPUs; write more of its UUID"):
        planned("limit GPU-ab=1GiB", *alike)


def test_two_instances_are_never_picked() -> None:
    with pytest.raises(Refused):
        planned("pick 2", *MIG, shown=("MIG-aaaa",))


@pytest.mark.parametrize("stage", [Stage.ABSENT, Stage.IMPORTED, Stage.LISTED])
def test_a_full_gpu_is_a_danger_only_where_an_operation_may_have_failed_already(stage: Stage) -> None:
    plan = planned("visible 1", gpu(0, 0.1), gpu(1), stage=stage)

    assert any("may hang at the next one" in note for note in plan.notes) == (stage is Stage.LISTED)
