"""What a refusal says: why, which process is in the way, and what can be had instead; on GPUs that are only data."""

from __future__ import annotations

import pickle

import pytest

from tests.config.test_plan import FOUR, gpu, kernel, snapshot
from tests.sizes import GIB, MIB
from tfgpu_magic.config.parser import parse
from tfgpu_magic.config.plan import make
from tfgpu_magic.config.policy import NOTHING
from tfgpu_magic.config.process_state import ProcessState, Stage
from tfgpu_magic.errors import Refused, TooLate
from tfgpu_magic.host import Host
from tfgpu_magic.monitor.snapshot import Process


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


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (ProcessState(stage=Stage.READY, since="since In [3] (x = 1)"), "since In [3] (x = 1), so its memory"),
        (ProcessState(stage=Stage.POISONED), "accept the setting and not enforce it"),
        (ProcessState(stage=Stage.LISTED, forked=True), "forked from one in which CUDA was running"),
        (ProcessState(stage=Stage.LISTED, broken=True), "Leave it alone, and restart"),
    ],
)
def test_too_late_is_told_with_the_restart_that_helps(state: ProcessState, told: str) -> None:
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
        make(parse("limit 40%"), snapshot(gpu(0)), ProcessState(stage=Stage.READY, host=host))

    assert way in str(caught.value)
    assert f"in this {host}" in str(caught.value)


def test_too_late_for_a_gpu_advises_all_the_words() -> None:
    shown = kernel(gpu(0), frozen=True, stage=Stage.LISTED)

    with pytest.raises(TooLate, match=r"%tf_gpu visible 1; limit 2GiB --restart"):
        make(parse("visible 1; limit 2GiB"), snapshot(*FOUR), shown)


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
    assert error.reason.startswith("GPU 0")
    assert str(error).startswith(f"Not applied. {error.reason}")


def test_a_refusal_that_comes_too_late_tells_why_apart_from_the_restart() -> None:
    with pytest.raises(TooLate) as caught:
        make(parse("growth"), snapshot(gpu(0)), kernel(gpu(0), stage=Stage.READY))

    assert caught.value.reason == str(caught.value).partition("\n")[0]
    assert caught.value.reason.endswith("so its memory cannot be changed any more.")
