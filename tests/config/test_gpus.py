"""Which GPUs a plan takes, and how much of them: old ones, MIG instances, and what is left to CUDA's libraries."""

from __future__ import annotations

import pytest

from tests.config.test_plan import gpu, kernel, snapshot
from tests.sizes import GIB, MIB
from tfgpu_magic.config.parser import parse
from tfgpu_magic.config.plan import make
from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.errors import Refused
from tfgpu_magic.monitor.snapshot import Gpu

OLD = gpu(0, 7.9, capability=(5, 2))


def test_a_gpu_that_other_builds_of_tensorflow_may_use_is_noted_and_not_refused() -> None:
    plan = make(parse("limit 1GiB"), snapshot(OLD), kernel(OLD))

    assert any("GPU 0 is older than compute capability 6.0" in note for note in plan.notes)


def test_a_gpu_that_tensorflow_has_listed_is_not_called_too_old() -> None:
    listed = kernel(OLD, stage=Stage.LISTED, frozen=True, tensorflow_sees=("GPU-0",))

    assert make(parse("limit 1GiB"), snapshot(OLD), listed).notes == ()


def test_a_gpu_that_tensorflow_has_left_out_is_refused() -> None:
    left_out = kernel(OLD, gpu(1), stage=Stage.LISTED, frozen=True, tensorflow_sees=("GPU-0",), skipped=("GPU-0",))

    with pytest.raises(Refused, match="too few multiprocessors beside the others, or too old for its build"):
        make(parse("limit 1GiB"), snapshot(OLD, gpu(1)), left_out)


def test_an_old_gpu_is_picked_last() -> None:
    new = gpu(1, 6, capability=(8, 0))

    plan = make(parse("pick"), snapshot(OLD, new), kernel(OLD, new))

    assert [device.gpu.label for device in plan.devices] == ["1"]


MIG = (
    gpu(0, mig=True),
    Gpu(index=0, instance=1, uuid="MIG-aaaa", total=10 * GIB, free=1 * GIB),
    Gpu(index=0, instance=2, uuid="MIG-bbbb", total=10 * GIB, free=9 * GIB),
)


@pytest.mark.parametrize("words", ["pick", "pick --need 4GiB"])
def test_of_mig_instances_the_one_with_most_free_memory_is_picked(words: str) -> None:
    plan = make(parse(words), snapshot(*MIG), kernel(MIG[1]))

    assert plan.environment["CUDA_VISIBLE_DEVICES"] == "MIG-bbbb"


def test_a_mig_instance_can_be_named_as_it_is_shown() -> None:
    plan = make(parse("visible 0.2; limit 0.2=1GiB"), snapshot(*MIG), kernel(MIG[1]))

    assert [(device.gpu.uuid, device.limits) for device in plan.devices] == [("MIG-bbbb", (GIB,))]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("visible 0", "GPU 0 is in MIG mode; name an instance of it: 0.1, 0.2."),
        ("visible 0; limit 1GiB", "0.1, 0.2.\nFor those that are:   %tf_gpu limit 1GiB"),
        ("visible MIG-bbbb,MIG-cccc", "For those that are:   %tf_gpu visible MIG-bbbb"),
        ("visible 0.1; limit 0.2=1GiB", "Show it first:   %tf_gpu visible 0.2"),
        ("visible 0.7", "There is no GPU 0.7 here; there are GPUs 0, 0.1 and 0.2."),
    ],
)
def test_advice_about_mig_instances_can_be_followed(words: str, told: str) -> None:
    with pytest.raises(Refused) as caught:
        make(parse(words), snapshot(*MIG), kernel(MIG[1]))

    assert str(caught.value).endswith(told)


def test_a_number_with_gpu_before_it_is_no_uuid() -> None:
    gpus = (Gpu(index=0, uuid="GPU-1f5c", total=8 * GIB, free=7 * GIB), Gpu(index=1, uuid="GPU-0d1b", total=8 * GIB))

    with pytest.raises(Refused, match="For nvidia-smi's GPU 0, write 0"):
        make(parse("visible GPU-0"), snapshot(*gpus), kernel(*gpus))


def test_where_a_scheduler_gave_one_mig_instance_no_other_is_picked() -> None:
    given = kernel(MIG[1], outside={"CUDA_VISIBLE_DEVICES": "MIG-aaaa"})

    assert [device.gpu.label for device in make(parse("pick"), snapshot(*MIG), given).devices] == ["0.1"]


@pytest.mark.parametrize(
    ("capability", "reserve"), [((6, 1), 500), ((7, 5), 1050), ((8, 0), 1536), ((9, 0), 1800), (None, 1800)]
)
def test_equal_shares_leave_what_tensorflow_leaves_to_its_libraries(
    capability: tuple[int, int] | None, reserve: int
) -> None:
    empty = gpu(0, 80, 80, capability=capability)

    plan = make(parse("split 2"), snapshot(empty), kernel(empty))

    assert plan.devices[0].limits == ((80 * 1024 - 512 - reserve) // 2 * MIB,) * 2
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

    notes = make(parse(words), snapshot(empty), kernel(empty)).notes

    assert any("Warning: of GPU 0 this leaves" in note for note in notes) is warned
