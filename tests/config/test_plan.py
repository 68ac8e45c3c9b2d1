"""Plans and refusals, on GPUs that are only data: what the simulated machine cannot show, or not as quickly."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sizes import GIB, MIB
from tfgpu_magic.config.parser import parse
from tfgpu_magic.config.plan import make
from tfgpu_magic.config.policy import NOTHING
from tfgpu_magic.config.process_state import ProcessState, Stage
from tfgpu_magic.errors import Refused, TooLate
from tfgpu_magic.monitor.snapshot import Gpu, Snapshot


def gpu(index: int, free: float = 7.5, total: int = 8, **more: Any) -> Gpu:
    return Gpu(index=index, uuid=f"GPU-{index}", name="T", total=total * GIB, free=int(free * GIB), **more)


def snapshot(*gpus: Gpu, **more: Any) -> Snapshot:
    return Snapshot(time=0.0, gpus=gpus, **more)


def kernel(*gpus: Gpu, **more: Any) -> ProcessState:
    return ProcessState(shown=tuple(str(gpu.uuid) for gpu in gpus), **more)


FOUR = (gpu(0, 1), gpu(1, 7), gpu(2, 7.5), gpu(3, 7))


@pytest.mark.parametrize(
    ("words", "labels"),
    [
        ("pick", ["2"]),
        ("pick 2", ["2", "1"]),
        ("pick 3 --need 6GiB", ["2", "1", "3"]),
        ("visible 3,2", ["3", "2"]),
        ("visible none", []),
        ("visible GPU-1", ["1"]),
        ("limit 512MiB", ["0", "1", "2", "3"]),
    ],
)
def test_which_gpus_are_seen_and_in_which_order(words: str, labels: list[str]) -> None:
    plan = make(parse(words), snapshot(*FOUR), kernel(*FOUR))

    assert [device.gpu.label for device in plan.devices] == labels


def test_pick_is_settled_so_that_later_words_do_not_pick_again() -> None:
    first = make(parse("pick"), snapshot(*FOUR), kernel(*FOUR))
    busy = (gpu(0, 1), gpu(1, 7), gpu(2, 3), gpu(3, 7))

    then = make(parse("limit 1GiB"), snapshot(*busy), kernel(*FOUR, asked=first.asked, settled=first.settled))

    assert [device.gpu.label for device in then.devices] == ["2"]
    assert str(then.asked) == "pick; limit 1GiB"


@pytest.mark.parametrize("words", ["growth", "limit 1GiB", "split 2", "split 4 --cpu", "visible all", "visible none"])
def test_without_a_gpu_the_words_do_no_harm(words: str) -> None:
    plan = make(parse(words), snapshot(error="There is no NVIDIA driver here.", absent=True), ProcessState())

    assert plan.notes == ("There is no NVIDIA driver here. TensorFlow will run on the CPU.",)


@pytest.mark.parametrize("words", ["limit 0=1GiB", "pick", "visible 1", "split 2 --gpu 0"])
def test_without_a_gpu_words_that_name_one_are_refused(words: str) -> None:
    with pytest.raises(Refused, match="There is no NVIDIA driver here"):
        make(parse(words), snapshot(error="There is no NVIDIA driver here.", absent=True), ProcessState())


def test_while_the_driver_hangs_growth_can_be_had_and_a_limit_cannot() -> None:
    hangs = snapshot(error="NVML did not answer within 1.5 s.")

    assert make(parse("growth"), hangs, ProcessState()).environment["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    assert not make(parse("growth"), hangs, ProcessState()).acts_on_nothing  # there may be GPUs
    with pytest.raises(Refused, match="did not answer"):
        make(parse("limit 1GiB"), hangs, ProcessState())


def test_a_lost_gpu_that_would_be_seen_is_refused_and_hiding_it_helps() -> None:
    gpus = (gpu(0, lost=True, error="the GPU is lost. Others go on"), gpu(1))

    with pytest.raises(Refused, match="GPU 0: the GPU is lost"):
        make(parse("growth"), snapshot(*gpus), kernel(*gpus))
    assert make(parse("visible 1; growth"), snapshot(*gpus), kernel(*gpus)).growth


def test_figures_that_the_driver_does_not_give_are_not_checked() -> None:
    unknown = Gpu(index=0, uuid="GPU-0")

    assert make(parse("limit 1GiB"), snapshot(unknown), kernel(unknown)).devices[0].limits == (GIB,)


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


def test_another_library_on_the_gpu_is_noted() -> None:
    plan = make(parse("growth"), snapshot(gpu(0)), kernel(gpu(0), frozen=True, neighbour="torch"))

    assert plan.notes == (
        "torch already uses a GPU in this kernel; what it takes comes on top of TensorFlow's limits.",
    )


@pytest.mark.parametrize(("total", "megabytes"), [(4, 256), (8, 256), (12, 384), (16, 512), (80, 512)])
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


@pytest.mark.parametrize("words", ["limit 40%", "split 2"])
def test_a_part_of_an_unknown_figure_is_refused(words: str) -> None:
    unified = Gpu(index=0, uuid="GPU-0", unified=True)

    with pytest.raises(Refused, match="GPU 0: the driver does not tell how much"):
        make(parse(words), snapshot(unified), kernel(unified))


def test_what_could_not_be_checked_is_said() -> None:
    unknown = Gpu(index=0, uuid="GPU-0", total=8 * GIB)

    plan = make(parse("limit 1GiB"), snapshot(unknown), kernel(unknown))

    assert "What is free on GPU 0 is unknown here, so whether it fits was not checked." in plan.notes


def test_a_missing_list_of_processes_hinders_nothing() -> None:
    quiet = gpu(0, listed=False, error="no list of processes: the driver gives no permission to read it")

    assert make(parse("limit 1GiB"), snapshot(quiet), kernel(quiet)).limited


def test_a_gpu_that_is_named_twice_in_two_ways_is_refused() -> None:
    with pytest.raises(Refused, match="named twice"):
        make(parse("visible 0,GPU-0"), snapshot(*FOUR), kernel(*FOUR))


@pytest.mark.parametrize("words", ["visible MIG-a,MIG-b", "visible 1,MIG-a"])
def test_a_mig_instance_is_shown_alone(words: str) -> None:
    gpus = (
        gpu(0, mig=True),
        Gpu(index=0, instance=1, uuid="MIG-a", total=GIB, free=GIB),
        Gpu(index=0, instance=2, uuid="MIG-b", total=GIB, free=GIB),
        gpu(1),
    )

    with pytest.raises(Refused, match="one MIG instance, and nothing beside it"):
        make(parse(words), snapshot(*gpus), kernel(gpu(1)))


def test_visible_all_leaves_the_choice_to_cuda() -> None:
    plan = make(parse("visible all"), snapshot(*FOUR), kernel(*FOUR[:1], outside={"CUDA_VISIBLE_DEVICES": "0"}))

    assert plan.environment["CUDA_VISIBLE_DEVICES"] is None
    assert [device.gpu.label for device in plan.devices] == ["0", "1", "2", "3"]


def test_a_later_order_does_not_hide_what_earlier_words_named() -> None:
    given = kernel(*FOUR[:1], outside={"CUDA_VISIBLE_DEVICES": "0"})
    first = make(parse("visible 2,1; limit 1=1GiB"), snapshot(*FOUR), given)

    then = make(parse("visible 1,2"), snapshot(*FOUR), kernel(*FOUR[:1], asked=first.asked, settled=first.settled))

    assert [(device.gpu.label, device.limits) for device in then.devices] == [("1", (GIB,)), ("2", ())]


def test_words_for_a_gpu_that_is_hidden_later_are_dropped_for_good() -> None:
    first = make(parse("limit 0=512MiB 1=1GiB"), snapshot(*FOUR), kernel(*FOUR))

    then = make(parse("visible 1"), snapshot(*FOUR), kernel(*FOUR, asked=first.asked, settled=first.settled))

    assert str(then.asked) == "limit 1=1GiB; visible 1"
    assert "GPU 0 is hidden now, so `limit 0=512MiB` no longer counts." in then.notes


def test_a_cap_is_not_refused_for_memory_that_it_does_not_take() -> None:
    plan = make(parse("limit 4GiB --grow"), snapshot(gpu(0, 2)), kernel(gpu(0, 2)))

    assert any("So much is not free now. GPU 0: the limit is 4 GiB" in note for note in plan.notes)
    with pytest.raises(Refused, match="needs about 256 MiB for CUDA's context"):
        make(parse("limit 1GiB --grow"), snapshot(gpu(0, 0.1)), kernel(gpu(0, 0.1)))


def test_pick_goes_where_fewest_others_are_of_gpus_that_are_as_free() -> None:
    gpus = (gpu(0, 7.5), gpu(1, 7.4), gpu(2, 7.45), gpu(3, 4))
    picked = make(parse("pick 2"), snapshot(*gpus), kernel(*gpus, claims={"GPU-0": 1.0, "GPU-2": 2.0}))

    assert [device.gpu.label for device in picked.devices] == ["1", "0"]


def test_pick_draws_lots_only_among_gpus_without_contexts_of_others() -> None:
    gpus = (gpu(0, 7.8), gpu(1, 8), gpu(2, 8), gpu(3, 7.99))
    lots = {"GPU-0": 0.1, "GPU-1": 1.2, "GPU-2": 0.5, "GPU-3": 0.3}
    picked = make(parse("pick 4"), snapshot(*gpus), kernel(*gpus, claims=lots))

    assert [device.gpu.label for device in picked.devices] == ["2", "3", "0", "1"]


@pytest.mark.parametrize("words", ["pick --or-cpu", "pick 2 --or-cpu", "pick --need 7.4GiB --or-cpu"])
def test_where_no_gpu_can_be_picked_the_cpu_goes_on_if_that_is_said(words: str) -> None:
    gpus = (gpu(0, 0.1), gpu(1, 7)) if "2" in words or "need" in words else (gpu(0, 0.1), gpu(1, 0.2))
    made = make(parse(words), snapshot(*gpus), kernel(*gpus))

    assert (made.devices, made.environment["CUDA_VISIBLE_DEVICES"]) == ((), "-1")
    assert (str(made.asked), str(made.settled)) == (words, "visible none")
    assert any("cannot be had now" in note and note.endswith("goes on on the CPU.") for note in made.notes)


def test_it_goes_on_with_a_gpu_where_there_is_one() -> None:
    made = make(parse("pick --or-cpu; limit 1GiB"), snapshot(*FOUR), kernel(*FOUR))

    assert [device.gpu.label for device in made.devices] == ["2"]
    assert not any("CPU" in note for note in made.notes)


@pytest.mark.parametrize("absent", [True, False])
def test_it_goes_on_on_the_cpu_where_there_is_no_gpu_or_none_is_known(absent: bool) -> None:
    nothing = snapshot(error="There is no NVIDIA driver here.", absent=absent)
    made = make(parse("pick --or-cpu; growth"), nothing, ProcessState())

    assert made.environment["CUDA_VISIBLE_DEVICES"] == "-1"
    assert any(note.endswith("goes on on the CPU.") for note in made.notes)


def test_nothing_is_picked_from_a_list_whose_gpus_are_unknown() -> None:
    gpus = (gpu(0), gpu(1, total=16))
    with pytest.raises(Refused, match="CUDA did not say in time which GPUs that leaves"):
        make(parse("pick"), snapshot(*gpus), ProcessState(shown=None, outside={"CUDA_VISIBLE_DEVICES": "1"}))


@pytest.mark.parametrize("words", ["visible 2; limit 1GiB", "pick; growth"])
def test_gpus_are_named_by_uuid_where_a_lost_one_may_shift_numbers(words: str) -> None:
    gpus = (gpu(0, 1), Gpu(index=1, uuid="GPU-1", lost=True, error="the GPU is lost"), gpu(2))
    plan = make(parse(words), snapshot(*gpus), kernel(gpus[0], gpus[2]))

    assert plan.environment["CUDA_VISIBLE_DEVICES"] == "GPU-2"


def test_a_tensorflow_that_is_too_old_to_know_is_said() -> None:
    plan = make(parse("growth"), snapshot(gpu(0)), kernel(gpu(0), old="2.15.1"))

    assert any("TensorFlow 2.15.1 is older than 2.16" in note for note in plan.notes)
