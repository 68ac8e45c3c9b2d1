"""Plans and refusals, on GPUs that are only data: what the simulated machine cannot show, or not as quickly."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tfgpu_magic.config.plan import make
from tfgpu_magic.config.policy import NOTHING
from tfgpu_magic.config.state import Kernel, Stage
from tfgpu_magic.config.words import parse
from tfgpu_magic.errors import Refused, TooLate
from tfgpu_magic.host import Host
from tfgpu_magic.monitor.snapshot import Gpu, Process, Snapshot

MIB, GIB = 2**20, 2**30


def gpu(index: int, free: float = 7.5, total: int = 8, **more: Any) -> Gpu:
    return Gpu(index=index, uuid=f"GPU-{index}", name="T", total=total * GIB, free=int(free * GIB), **more)


def snapshot(*gpus: Gpu, **more: Any) -> Snapshot:
    return Snapshot(time=0.0, gpus=gpus, **more)


def kernel(*gpus: Gpu, **more: Any) -> Kernel:
    return Kernel(shown=tuple(str(gpu.uuid) for gpu in gpus), **more)


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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("pick --need 7.9GiB", "and room for CUDA's context, cannot be had now; no GPU has it."),
        ("pick 2 --need 7.2GiB", "2 GPUs with 7.2GiB free, and room for CUDA's context, cannot be had now; 1 can"),
        (
            "limit 2GiB",
            "GPU 0: the limit is 2 GiB, and CUDA's context takes about 256 MiB more; 1 GiB of 8 GiB are free.",
        ),
        (
            "limit 2GiB",
            "Fits now:\n  %tf_gpu pick --need 2GiB; limit 2GiB\n  %tf_gpu visible 1,2,3; limit 2GiB\n  %tf_gpu limit",
        ),
        ("visible 0; limit 2GiB", "Fits now:\n  %tf_gpu pick --need 2GiB; limit 2GiB\n  %tf_gpu visible 0; limit 760"),
        ("limit 0=2GiB 1=1GiB", "Fits now:\n  %tf_gpu limit 0=760MiB; limit 1=1GiB"),
        ("limit 0=2GiB 1=1GiB", "visible 1,2,3; limit 1=1GiB"),
        ("default; limit 0=2GiB 1=1GiB", "default; visible 1,2,3; limit 1=1GiB"),
        ("limit 0.1MiB", "0.1MiB is too little to work with; 32 MiB is the least.\nFits now:\n  %tf_gpu limit 32MiB"),
        ("limit 95%", "Fits now:\n  %tf_gpu pick; limit 7.2GiB\n  %tf_gpu limit 760MiB"),
        ("split 4GiB 2GiB", "Fits now:\n  %tf_gpu pick --need 6GiB; split 4GiB 2GiB\n  %tf_gpu visible 1,2,3; split 4"),
        ("visible 1; split 50% 50%", "is 8 GiB, and CUDA's context takes about 256 MiB more; 7 GiB of 8 GiB are free."),
        ("visible 1; split 50% 50%", "Fits now:\n  %tf_gpu visible 1; split 2"),
        ("limit 0=512MiB 1=4GiB 5=2GiB", "For those that are:   %tf_gpu limit 0=512MiB; limit 1=4GiB"),
        ("visible 0,7; limit 512MiB", "For those that are:   %tf_gpu visible 0; limit 512MiB"),
        ("split 2GiB 6GiB --gpu 1", "2GiB + 6GiB is 8 GiB"),
        ("limit 5=1GiB", "There is no GPU 5 here; there are GPUs 0, 1, 2 and 3."),
        ("limit GPU-=1GiB", "is not a GPU"),
        ("visible GPU-9", "There is no GPU GPU-9 here"),
        ("growth; visible 0; limit 1=1GiB", "Show it first:   %tf_gpu visible 0,1"),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_figures_and_the_way_out(words: str, told: str) -> None:
    with pytest.raises((Refused, ValueError)) as caught:
        make(parse(words), snapshot(*FOUR), kernel(*FOUR))

    assert told in str(caught.value)


def test_who_holds_the_missing_memory_is_named_the_largest_first() -> None:
    processes = tuple(Process(gpu="0", pid=pid, kind="C", held=pid * MIB) for pid in range(1, 9))

    with pytest.raises(Refused) as caught:
        make(parse("limit 7.5GiB"), snapshot(gpu(0), processes=processes), kernel(gpu(0)), lambda: {8: "train.ipynb"})

    lines = str(caught.value).splitlines()
    assert lines[1].split() == ["8", "MiB", "train.ipynb"]
    assert lines[6].split() == ["and", "3", "more"]


@pytest.mark.parametrize("words", ["limit 1MiB", "limit 9GiB"])
def test_who_holds_memory_is_not_told_where_none_is_missing(words: str) -> None:
    processes = (Process(gpu="0", pid=1, kind="C", held=GIB),)

    with pytest.raises(Refused) as caught:
        make(parse(words), snapshot(gpu(0), processes=processes), kernel(gpu(0)))

    assert "pid 1" not in str(caught.value)


def test_gpus_that_lack_the_same_are_told_of_together() -> None:
    alike = (gpu(0, 1), gpu(1, 1), gpu(2, 1))

    with pytest.raises(Refused, match=r"GPU 0, 1, 2: the limit is 2 GiB"):
        make(parse("limit 2GiB"), snapshot(*alike), kernel(*alike))


@pytest.mark.parametrize("words", ["growth", "limit 1GiB", "split 2", "split 4 --cpu", "visible all", "visible none"])
def test_without_a_gpu_the_words_do_no_harm(words: str) -> None:
    plan = make(parse(words), snapshot(error="There is no NVIDIA driver here.", absent=True), Kernel())

    assert plan.notes == ("There is no NVIDIA driver here. TensorFlow will run on the CPU.",)


@pytest.mark.parametrize("words", ["limit 0=1GiB", "pick", "visible 1", "split 2 --gpu 0"])
def test_without_a_gpu_words_that_name_one_are_refused(words: str) -> None:
    with pytest.raises(Refused, match="There is no NVIDIA driver here"):
        make(parse(words), snapshot(error="There is no NVIDIA driver here.", absent=True), Kernel())


def test_while_the_driver_hangs_growth_can_be_had_and_a_limit_cannot() -> None:
    hangs = snapshot(error="NVML did not answer within 1.5 s.")

    assert make(parse("growth"), hangs, Kernel()).environment["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    assert not make(parse("growth"), hangs, Kernel()).acts_on_nothing  # there may be GPUs
    with pytest.raises(Refused, match="did not answer"):
        make(parse("limit 1GiB"), hangs, Kernel())


def test_a_lost_gpu_that_would_be_seen_is_refused_and_hiding_it_helps() -> None:
    gpus = (gpu(0, lost=True, error="the GPU is lost. Others go on"), gpu(1))

    with pytest.raises(Refused, match="GPU 0: the GPU is lost"):
        make(parse("growth"), snapshot(*gpus), kernel(*gpus))
    assert make(parse("visible 1; growth"), snapshot(*gpus), kernel(*gpus)).growth


def test_figures_that_the_driver_does_not_give_are_not_checked() -> None:
    unknown = Gpu(index=0, uuid="GPU-0")

    assert make(parse("limit 1GiB"), snapshot(unknown), kernel(unknown)).devices[0].limits == (GIB,)


def test_what_is_in_force_already_is_no_error_when_said_again() -> None:
    asked = parse("limit 1GiB")

    plan = make(asked, snapshot(gpu(0, 1)), kernel(gpu(0), stage=Stage.READY, asked=asked, settled=asked))

    assert plan.in_force


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
        ("limit 0=1GiB; limit 1=2GiB", "limit 0=1GiB"),
        ("visible 0; growth", "growth; visible 0"),
        ("limit 1GiB", "default; limit 1GiB"),
    ],
)
def test_words_that_change_nothing_are_in_force_already(asked: str, words: str) -> None:
    ready = kernel(gpu(0), stage=Stage.READY, asked=parse(asked), settled=parse(asked))

    assert make(parse(words), snapshot(gpu(0)), ready).in_force


def test_to_drop_nothing_is_never_too_late() -> None:
    assert make(parse("default"), snapshot(gpu(0)), kernel(gpu(0), stage=Stage.READY)).in_force


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (Kernel(stage=Stage.READY, since="since In [3] (x = 1)"), "since In [3] (x = 1), so its memory"),
        (Kernel(stage=Stage.POISONED), "accept the setting and not enforce it"),
        (Kernel(stage=Stage.LISTED, forked=True), "forked from one in which CUDA was running"),
        (Kernel(stage=Stage.LISTED, broken=True), "Leave it alone, and restart"),
    ],
)
def test_too_late_is_told_with_the_restart_that_helps(state: Kernel, told: str) -> None:
    with pytest.raises(TooLate) as caught:
        make(parse("limit 40%"), snapshot(gpu(0)), state)

    assert told in str(caught.value)
    assert ("%tf_gpu limit 40% --restart" in str(caught.value)) is not state.forked


@pytest.mark.parametrize(
    ("host", "way"),
    [
        ("kernel", "Restart and apply:   %tf_gpu limit 40% --restart"),
        ("session", "Leave IPython, start it again and say first:   %tf_gpu limit 40% "),
        ("cell", "Say it above the cell:   %%tf_gpu isolate limit 40%"),
        ("program", 'tfgpu_magic.apply("limit 40%")'),
    ],
)
def test_too_late_is_told_with_the_way_from_where_one_is(host: Host, way: str) -> None:
    with pytest.raises(TooLate) as caught:
        make(parse("limit 40%"), snapshot(gpu(0)), Kernel(stage=Stage.READY, host=host))

    assert way in str(caught.value)
    assert f"in this {host}" in str(caught.value)


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


@pytest.mark.parametrize("words", ["limit 1GiB", "visible 0", "visible 0; limit 1GiB", "limit 1GiB; visible 0", "pick"])
def test_words_that_are_a_part_of_what_is_in_force_are_in_force(words: str) -> None:
    asked = parse("pick; limit 1GiB") if words == "pick" else parse("visible 0; limit 1GiB")

    plan = make(parse(words), snapshot(gpu(0, 1)), kernel(gpu(0), stage=Stage.READY, asked=asked, settled=asked))

    assert plan.in_force
    assert plan.asked == asked


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


def test_too_late_for_a_gpu_advises_all_the_words() -> None:
    shown = kernel(gpu(0), frozen=True, stage=Stage.LISTED)

    with pytest.raises(TooLate, match=r"%tf_gpu visible 1; limit 2GiB --restart"):
        make(parse("visible 1; limit 2GiB"), snapshot(*FOUR), shown)


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


def test_nothing_is_picked_from_a_list_whose_gpus_are_unknown() -> None:
    gpus = (gpu(0), gpu(1, total=16))
    with pytest.raises(Refused, match="CUDA did not say in time which GPUs that leaves"):
        make(parse("pick"), snapshot(*gpus), Kernel(shown=None, outside={"CUDA_VISIBLE_DEVICES": "1"}))


@pytest.mark.parametrize("words", ["visible 2; limit 1GiB", "pick; growth"])
def test_gpus_are_named_by_uuid_where_a_lost_one_may_shift_numbers(words: str) -> None:
    gpus = (gpu(0, 1), Gpu(index=1, uuid="GPU-1", lost=True, error="the GPU is lost"), gpu(2))
    plan = make(parse(words), snapshot(*gpus), kernel(gpus[0], gpus[2]))

    assert plan.environment["CUDA_VISIBLE_DEVICES"] == "GPU-2"


def test_a_tensorflow_that_is_too_old_to_know_is_said() -> None:
    plan = make(parse("growth"), snapshot(gpu(0)), kernel(gpu(0), old="2.15.1"))

    assert any("TensorFlow 2.15.1 is older than 2.16" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("earlier", "words", "ways"),
    [
        (
            "",
            "visible 0; growth; limit 0=1GiB",
            ("visible 0; growth; limit 0=1GiB --grow", "default; visible 0; limit 0=1GiB"),
        ),
        ("growth", "pick; limit 1=1GiB", ("pick; limit 1=1GiB --grow", "default; pick; limit 1=1GiB")),
        (
            "visible 0,1; limit 0=1GiB",
            "limit 1=2GiB --grow",
            ("limit 0=1GiB --grow; limit 1=2GiB --grow", "default; visible 0,1; limit 0=1GiB; limit 1=2GiB"),
        ),
        ("growth off", "limit 0=1GiB --grow", ("default; limit 0=1GiB",)),
    ],
)
def test_ways_to_agree_on_growth_lose_no_other_words_and_can_be_had(
    earlier: str, words: str, ways: tuple[str, ...]
) -> None:
    gpus = (gpu(0, 3), gpu(1))
    asked = parse(earlier) if earlier else NOTHING
    here = kernel(*gpus, asked=asked, settled=asked)

    with pytest.raises(Refused, match="one setting for all GPUs") as caught:
        make(parse(words), snapshot(*gpus), here)

    assert caught.value.ways == ways
    assert all(make(parse(way), snapshot(*gpus), here).limited for way in ways)


def test_a_refusal_tells_its_ways_as_data_and_where_they_are_to_be_said() -> None:
    with pytest.raises(Refused) as caught:
        make(parse("limit 95%"), snapshot(*FOUR), kernel(*FOUR))

    error: Refused = pickle.loads(pickle.dumps(caught.value))
    assert error.ways == ("pick; limit 7.2GiB", "limit 760MiB")
    assert str(error) == str(caught.value)
    assert str(error).endswith("\nFits now:\n  %tf_gpu pick; limit 7.2GiB\n  %tf_gpu limit 760MiB")
    assert error.text("%%tf_gpu isolate").endswith("  %%tf_gpu isolate limit 760MiB")
    assert error.reason.startswith("Not applied. GPU 0")


def test_a_refusal_that_comes_too_late_tells_why_apart_from_the_restart() -> None:
    with pytest.raises(TooLate) as caught:
        make(parse("growth"), snapshot(gpu(0)), kernel(gpu(0), stage=Stage.READY))

    assert caught.value.reason == str(caught.value).partition("\n")[0]
    assert caught.value.reason.endswith("so its memory cannot be changed any more.")
