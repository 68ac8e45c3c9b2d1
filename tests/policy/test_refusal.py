"""What a refusal says: why, which process is in the way, and what can be had instead; on GPUs that are only data."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tests.policy.test_plan import FOUR, INSTANCE, LOST, MIG, NO_DRIVER, gpu, kernel, planned, snapshot
from tests.sizes import MIB
from tfgpu_magic.errors import Refused, TooLate
from tfgpu_magic.ground.message import FrontEnd
from tfgpu_magic.ground.snapshot import Gpu, Process
from tfgpu_magic.policy.decide import decide
from tfgpu_magic.policy.parser import parse
from tfgpu_magic.policy.policy import NOTHING
from tfgpu_magic.policy.process_state import Stage

ABSENT = {"error": NO_DRIVER, "absent": True, "shown": None}
ALIKE = [gpu(n)._replace(uuid=f"GPU-ab{n}") for n in range(2)]
ONLY = {"shown": ("GPU-1",)}
"""What CUDA shows beside a GPU with instances."""


@pytest.mark.parametrize(
    ("words", "gpus", "here", "told"),
    [
        ("pick --need 7.9GiB", FOUR, {}, "and room for CUDA's context, cannot be had now; no GPU has it."),
        ("pick 2 --need 7.2GiB", FOUR, {}, "2 GPUs with 7.2GiB free, and room for CUDA's context, cannot be had now"),
        ("pick 2", MIG, INSTANCE, ""),  # two instances are never picked
        (
            "pick",
            (gpu(0), gpu(1, total=16)),
            {"shown": None, "outside": {"CUDA_VISIBLE_DEVICES": "1"}},
            "CUDA did not say in time which GPUs that leaves",
        ),
        (
            "limit 2GiB",
            FOUR,
            {},
            "GPU 0: the limit is 2 GiB, and CUDA's context takes about 256 MiB more; 1 GiB of 8 GiB are free.",
        ),
        ("limit 2GiB", (gpu(0, 1), gpu(1, 1), gpu(2, 1)), {}, "GPU 0, 1, 2: the limit is 2 GiB"),
        ("limit 0.1MiB", FOUR, {}, "0.1MiB is too little to work with; 32 MiB is the least."),
        ("limit 1GiB --grow", (gpu(0, 0.1),), {}, "needs about 256 MiB for CUDA's context"),
        ("limit 40%", (Gpu(index=0, uuid="GPU-0", unified=True),), {}, "GPU 0: the driver does not tell how much"),
        ("split 2", (Gpu(index=0, uuid="GPU-0", unified=True),), {}, "GPU 0: the driver does not tell how much"),
        ("growth", (LOST, gpu(1)), {}, "GPU 0: the GPU is lost"),
        ("visible 1; split 50% 50%", FOUR, {}, "is 8 GiB, and CUDA's context takes about 256 MiB more; 7 GiB of 8 GiB"),
        ("split 2GiB 6GiB --gpu 1", FOUR, {}, "2GiB + 6GiB is 8 GiB"),
        ("limit 5=1GiB", FOUR, {}, "There is no GPU 5 here; there are GPUs 0, 1, 2 and 3."),
        ("limit GPU-=1GiB", FOUR, {}, "is not a GPU"),
        ("limit GPU-ab=1GiB", ALIKE, {}, "GPU-ab may be any of 2 GPUs; write more of its UUID"),
        ("visible GPU-9", FOUR, {}, "There is no GPU GPU-9 here"),
        ("visible GPU-0", (Gpu(index=0, uuid="GPU-1f5c"), Gpu(index=1, uuid="GPU-0d1b")), {}, "GPU 0, write 0"),
        ("visible 0,GPU-0", FOUR, {}, "named twice"),
        ("visible MIG-aaaa,MIG-bbbb", (*MIG, gpu(1)), ONLY, "one MIG instance, and nothing beside it"),
        ("visible 1,MIG-aaaa", (*MIG, gpu(1)), ONLY, "one MIG instance, and nothing beside it"),
        ("visible 0", MIG, {}, "GPU 0 is in MIG mode; name an instance of it: 0.1, 0.2."),
        ("visible 0.7", MIG, {}, "There is no GPU 0.7 here; there are GPUs 0, 0.1 and 0.2."),
        (
            "limit 1GiB",
            (gpu(0, 7.9), gpu(1)),
            {"stage": Stage.LISTED, "frozen": True, "tensorflow_sees": ("GPU-0",), "skipped": ("GPU-0",)},
            "too few multiprocessors beside the others, or too old for its build",
        ),
        *((words, (), ABSENT, NO_DRIVER) for words in ("limit 0=1GiB", "pick", "visible 1", "split 2 --gpu 0")),
        ("limit 1GiB", (), {"error": "NVML did not answer within 1.5 s."}, "did not answer"),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_figures_and_the_way_out(
    words: str, gpus: tuple[Gpu, ...], here: dict[str, Any], told: str
) -> None:
    machine = snapshot(*gpus, **{name: here[name] for name in ("error", "absent") if name in here})
    process = {name: value for name, value in here.items() if name not in ("error", "absent")}
    with pytest.raises((Refused, ValueError)) as caught:
        decide(parse(words), machine, kernel(*gpus)._replace(**process))

    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("words", "gpus", "here", "ways"),
    [
        ("limit 2GiB", FOUR, {}, ["pick; limit 2GiB", "visible 1,2,3; limit 2GiB", "limit 540MiB"]),
        ("visible 0; limit 2GiB", FOUR, {}, ["pick; limit 2GiB", "visible 0; limit 540MiB"]),
        ("limit 0=2GiB 1=1GiB", FOUR, {}, ["limit 0=540MiB; limit 1=1GiB", "visible 1,2,3; limit 1=1GiB"]),
        (
            "default; limit 0=2GiB 1=1GiB",
            FOUR,
            {},
            ["default; limit 0=540MiB; limit 1=1GiB", "default; visible 1,2,3; limit 1=1GiB"],
        ),
        ("limit 0.1MiB", FOUR, {}, ["limit 32MiB"]),
        ("limit 95%", FOUR, {}, ["pick; limit 5.4GiB", "limit 540MiB"]),
        (
            "split 3GiB 1GiB",
            FOUR,
            {},
            ["pick; split 3GiB 1GiB", "visible 1,2,3; split 3GiB 1GiB", "split 2"],
        ),
        ("visible 1; split 50% 50%", FOUR, {}, ["visible 1; split 2"]),
        ("limit 0=512MiB 1=4GiB 5=2GiB", FOUR, {}, ["limit 0=512MiB; limit 1=4GiB"]),
        ("visible 0,7; limit 512MiB", FOUR, {}, ["visible 0; limit 512MiB"]),
        ("growth; visible 0; limit 1=1GiB", FOUR, {}, ["visible 0,1"]),
        ("visible 0; limit 1GiB", MIG, {}, ["limit 1GiB"]),
        ("visible MIG-bbbb,MIG-cccc", MIG, {}, ["visible MIG-bbbb"]),
        ("visible 0.1; limit 0.2=1GiB", MIG, INSTANCE, ["visible 0.2"]),
    ],
)
def test_a_refusal_has_the_ways_out(words: str, gpus: tuple[Gpu, ...], here: dict[str, Any], ways: list[str]) -> None:
    with pytest.raises(Refused) as caught:
        planned(words, *gpus, **here)

    assert [way.words for way in caught.value.tries] == ways


def test_who_holds_the_missing_memory_is_named_the_largest_first_and_where_none_is_missing_nobody() -> None:
    rows = tuple(Process(gpu="0", pid=pid, kind="C", held=pid * MIB) for pid in range(1, 9))

    def told(words: str) -> list[str]:
        with pytest.raises(Refused) as caught:
            decide(parse(words), snapshot(gpu(0), processes=rows), kernel(gpu(0)), lambda: {8: "train.ipynb"})
        return str(caught.value).splitlines()

    lines = told("limit 7.5GiB")
    assert lines[1].split() == ["8", "MiB", "train.ipynb"]
    assert lines[6].split() == ["and", "3", "more"]
    for words in ("limit 1MiB", "limit 9GiB"):
        assert "train.ipynb" not in "\n".join(told(words))


RESTART = "%tf_gpu limit 40% --restart"


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"since": "since In [3] (x = 1)"}, ["since In [3] (x = 1), so its memory", RESTART]),
        ({"stage": Stage.POISONED}, ["accept the setting and not enforce it", RESTART]),
        ({"stage": Stage.LISTED, "broken": True}, ["Leave it alone, and restart", RESTART]),
        ({"stage": Stage.LISTED, "forked": True}, ["forked from one in which CUDA was running"]),
        ({"host": "kernel"}, ["in this kernel", f"Restart and apply:   {RESTART}"]),
        ({"host": "session"}, ["in this session", "Leave IPython, start it again and say first:   %tf_gpu limit 40% "]),
        ({"host": "cell"}, ["in this cell", "Say it above the cell:   %%tf_gpu isolate limit 40%"]),
        ({"host": "program"}, ["in this program", 'tfgpu_magic.apply("limit 40%")']),
    ],
)
def test_too_late_is_told_with_why_and_with_the_way_from_where_one_is(state: dict[str, Any], told: list[str]) -> None:
    with pytest.raises(TooLate) as caught:
        planned("limit 40%", gpu(0), **{"stage": Stage.READY, **state})

    assert [part for part in told if part not in str(caught.value)] == []
    assert not (state.get("forked") and RESTART in str(caught.value))
    assert str(caught.value.reason.without_next) == str(caught.value).partition("\n")[0]


@pytest.mark.parametrize(
    ("host", "way"),
    [("kernel", "%tf_gpu visible 1; limit 2GiB --restart"), ("program", r'apply\("visible 1; limit 2GiB"')],
)
def test_too_late_for_a_gpu_advises_all_the_words_and_nothing_untried(host: str, way: str) -> None:
    with pytest.raises(TooLate, match=way) as caught:
        planned("visible 1; limit 2GiB", *FOUR, shown=("GPU-0",), frozen=True, stage=Stage.LISTED, host=host)

    assert "isolate" not in str(caught.value)


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
        decide(parse(words), snapshot(*gpus), here)

    assert tuple(way.words for way in caught.value.tries) == ways
    assert all(decide(parse(way), snapshot(*gpus), here).limited for way in ways)


def test_a_refusal_tells_its_ways_as_data_and_where_they_are_to_be_said() -> None:
    with pytest.raises(Refused) as caught:
        planned("limit 95%", *FOUR)

    error: Refused = pickle.loads(pickle.dumps(caught.value))
    assert [way.words for way in error.tries] == ["pick; limit 5.4GiB", "limit 540MiB"]
    assert str(error) == str(caught.value)
    assert str(error).endswith("\nFits now:\n  %tf_gpu pick; limit 5.4GiB\n  %tf_gpu limit 540MiB")
    assert FrontEnd(above="%%tf_gpu isolate").text(error.message).endswith("  %%tf_gpu isolate limit 540MiB")
    assert str(error.reason).startswith("GPU 0")
    assert str(error).startswith(f"Not applied. {error.reason}")


@pytest.mark.parametrize(
    ("gpus", "cell"),
    [
        ((gpu(0, 7),), "limit 2GiB"),
        (FOUR, "pick; limit 2GiB"),
        ((gpu(0, 1),), "limit 540MiB"),
        ((gpu(0, 0.1),), None),
        ((), "limit 2GiB"),
    ],
)
def test_an_isolated_cell_is_offered_where_it_fits_beside_this_kernel(gpus: tuple[Gpu, ...], cell: str | None) -> None:
    with pytest.raises(TooLate) as caught:
        planned("limit 2GiB", *gpus, stage=Stage.READY)
    _, _, offered = str(caught.value).partition("\nOr run one cell:")

    assert "%tf_gpu limit 2GiB --restart" in str(caught.value)
    assert offered.partition("   (")[0].strip() == ("" if cell is None else f"%%tf_gpu isolate {cell}")
