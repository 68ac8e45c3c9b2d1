"""`measure --fit`: the line that it gives is accepted, and the same program runs under it."""

from __future__ import annotations

import re

import pytest

import tfgpu_magic
from tests.insight.cases import case, shortage
from tests.insight.programs import take
from tests.insight.shell import cells
from tests.machines import machine_of
from tests.processes import run
from tests.sizes import GIB, MIB
from tfgpu_magic.frameworks.pool import Pool
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.insight.recommend import recommend
from tfgpu_magic.policy import parser
from tfgpu_magic.simgpu import Machine

machine = machine_of("2x8GiB")

MACHINE = Snapshot(time=0.0, gpus=tuple(Gpu(index=n, uuid=f"GPU-{n}", total=8 * GIB, free=8 * GIB) for n in range(3)))


def pool(gpu: int, peak: int, name: str = "GPU:0") -> Pool:
    return Pool(framework="", name=name, gpu=f"GPU-{gpu}", in_use=0, peak=peak)


@pytest.mark.parametrize(
    ("peaks", "line"),
    [
        ({"TensorFlow": [pool(0, 2 * GIB)]}, "%tf_gpu visible 0; limit 2.5GiB"),
        ({"TensorFlow": [pool(0, 100 * MIB)]}, "%tf_gpu visible 0; limit 150MiB"),
        ({"TensorFlow": [pool(0, 1)]}, "%tf_gpu visible 0; limit 40MiB"),
        ({"TensorFlow": [pool(0, 0), pool(1, GIB, "GPU:1")]}, "%tf_gpu visible 1; limit 1.5GiB"),
        ({"TensorFlow": [pool(0, GIB), pool(1, GIB, "GPU:1")]}, "%tf_gpu visible 0,1; limit 1.5GiB"),
        ({"TensorFlow": [pool(0, GIB), pool(1, 2 * GIB, "GPU:1")]}, "%tf_gpu visible 0,1; limit 0=1.5GiB 1=2.5GiB"),
        ({"TensorFlow": [pool(1, GIB), pool(1, 2 * GIB, "GPU:1")]}, "%tf_gpu visible 1; split 1.5GiB 2.5GiB --gpu 1"),
        ({"TensorFlow": [pool(0, 8 * GIB)]}, "%tf_gpu visible 0; limit 7936MiB"),
        ({"TensorFlow": [pool(n, GIB, f"GPU:{n}") for n in range(3)]}, "%tf_gpu limit 1.5GiB"),
        ({"TensorFlow": [pool(0, GIB), pool(1, 2048, "GPU:1")]}, "%tf_gpu visible 0; limit 1.5GiB"),
        ({"PyTorch": [pool(0, 2 * GIB)]}, "%gpu visible 0; limit 2.5GiB"),
        ({"PyTorch": [pool(0, GIB)._replace(most=2 * GIB)]}, "%gpu visible 0; limit 2.5GiB"),  # which its limit is of
        ({"TensorFlow": [pool(0, GIB)], "PyTorch": [pool(0, 2 * GIB)]}, "%gpu visible 0; limit 2.5GiB"),
        ({"TensorFlow": [pool(0, GIB)], "JAX": [pool(2, 4 * GIB)]}, "%gpu visible 0,2; limit 0=1.5GiB 2=4.5GiB"),
    ],
)
def test_the_line_gives_each_gpu_that_was_used_its_peak_and_a_margin(peaks: dict[str, list[Pool]], line: str) -> None:
    found = recommend(peaks, MACHINE)

    assert f"%{found.magic} {found.policy}" == line
    assert parser.parse(found.policy).requests
    for need in found.needs:
        assert all(limit > peak or peak == 8 * GIB for peak, limit in zip(need.peaks, need.limits, strict=True))


def test_what_ran_out_counts_with_what_it_asked_for() -> None:
    """No peak has what was refused."""
    here = pool(0, 4 * GIB)._replace(framework="TensorFlow")
    failed = case(cell=16, pool=here, shortage=shortage(2))
    answer = recommend({"TensorFlow": [here]}, MACHINE, failed)

    assert "%tf_gpu visible 0; limit 6.8GiB" in repr(answer)
    assert "In [16] asked for 2 GiB and did not get them: they are in it." in repr(answer)

    unknown = case(cell=16, pool=here, shortage=shortage(None))
    answer = recommend({"TensorFlow": [here]}, MACHINE, unknown)

    assert "%tf_gpu visible 0; limit 4.5GiB" in repr(answer)
    assert "In [16] ran out of memory: how much it would have taken is not known." in repr(answer)


def test_after_pick_the_next_notebook_is_to_pick_too(machine: Machine) -> None:
    used = "from tests.insight.programs import take; import tensorflow as tf; x = take(800)"
    *_, seen = run(machine, cells, "%tf_gpu pick; growth", used, "%tf_gpu measure --fit")

    assert "%tf_gpu pick; limit 1.2GiB" in seen.value


def test_a_peak_that_the_user_has_reset_counts(machine: Machine) -> None:
    first = "from tests.insight.programs import take; import tensorflow as tf"
    measured = "x = take(800); del x; tf.config.experimental.reset_memory_stats('GPU:0')"
    *_, seen = run(machine, cells, first, measured, "%tf_gpu measure --fit")

    assert re.search(r"limit 1\.2GiB", seen.value)


def test_without_a_peak_it_says_what_to_do() -> None:
    for peaks in ({}, {"TensorFlow": [pool(0, 0)]}):
        answer = recommend(peaks, MACHINE)

        assert "no peaks to go by. Run the cells that count" in repr(answer)
        assert "no peaks to go by" in answer._repr_html_()


def test_where_the_driver_says_nothing_it_says_so_and_not_that_nothing_was_used() -> None:
    answer = recommend({"TensorFlow": [pool(0, GIB)]}, Snapshot(time=0.0, error="it hangs."))

    assert repr(answer) == "How much to ask for is not known: it hangs."
    assert "it hangs." in answer._repr_html_()


def test_what_the_gpu_is_to_have_free_counts_one_context_for_all_frameworks() -> None:
    answer = recommend({"TensorFlow": [pool(0, GIB)], "PyTorch": [pool(0, 2 * GIB)]}, MACHINE)

    assert "GPU 0 is to have 4.2 GiB free: CUDA's context takes about 256 MiB beside that." in repr(answer)


def test_limits_that_are_more_than_the_gpu_has_are_not_said_to_be_free_memory() -> None:
    answer = recommend({"TensorFlow": [pool(0, 5 * GIB)], "PyTorch": [pool(0, 5 * GIB)]}, MACHINE)

    assert "come to 11.6 GiB, and GPU 0 has 8 GiB: the frameworks had their peaks at different times" in repr(answer)
    assert "is to have" not in repr(answer)


@pytest.mark.parametrize("words", ["growth", "split 2GiB 3GiB --gpu 0", "visible 1; growth"])
def test_the_same_program_runs_under_the_line(machine: Machine, words: str) -> None:
    line = run(machine, _asked, words)

    assert line.startswith("%tf_gpu ")
    assert run(machine, _again, line.removeprefix("%tf_gpu ")) > 800 * MIB


def _asked(words: str) -> str:
    import tensorflow as tf

    *_, seen = cells(
        f"%tf_gpu {words}",
        "from tests.insight.test_fit import program; program()",
        "%tf_gpu measure --fit",
    )
    assert tf.config.list_logical_devices("GPU")
    found = re.search(r"^  (%\S+ .+)$", seen.value, re.MULTILINE)
    assert found is not None, seen.value
    return found[1]


def _again(words: str) -> int:
    import tensorflow as tf

    tfgpu_magic.apply(words)
    program()
    return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])


def program() -> None:
    """Take pieces of many sizes, and give every second one back before more are taken."""
    pieces = [take(mib) for mib in (1, 40, 3, 90, 20, 200, 7, 150)]
    del pieces[::2]
    more = [take(mib) for mib in (60, 11, 170, 300)]
    del pieces, more
