"""The status in a kernel: TensorFlow's own figures beside the driver's, and nothing woken by looking."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

import tfgpu_magic
from tests.processes import PATIENCE, run
from tests.sizes import GIB, MIB
from tests.tf.on_machine import first_op, held
from tests.tf.test_calls import listed, nothing, ready, user_growth
from tfgpu_magic.frameworks.tensorflow.devices import current_stage
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from tfgpu_magic.engine.status import Status


@pytest.mark.parametrize("words", ["", "limit 1GiB", "visible 1"])
def test_looking_moves_tensorflow_no_further(words: str) -> None:
    with Machine.create("8GiB,16GiB") as machine:
        for before, same, sizes, after in run(machine, _look, words):
            assert same, before
            assert after == sizes, before


def test_figures_are_tensorflows_own_and_the_drivers_named_apart() -> None:
    with Machine.create("2x8GiB") as machine:
        row, (this, _) = run(machine, _use_a_gpu)

    assert row.logical == "GPU:0"
    assert row.policy == "limit 2 GiB"
    in_use, peak = row.figures
    assert 512 * MIB <= in_use.size < 520 * MIB
    assert peak.size >= 768 * MIB
    assert row.used == this == 2 * GIB + 256 * MIB


def test_what_the_driver_does_not_tell_is_not_available_and_tensorflows_own_figures_stand() -> None:
    """As under WSL 2."""
    with Machine.create("1x8GiB") as machine:
        machine.hide_memory()
        text = run(machine, _text_of_a_used_gpu)

    assert re.search(r"peak +0\.8 GiB +limit 2 GiB$", text, re.MULTILINE)
    assert re.search(r"this program +N/A$", text, re.MULTILINE)


def test_each_logical_gpu_has_its_name_beside_nvidia_smis_number() -> None:
    with Machine.create("8GiB,16GiB") as machine:
        names = run(machine, _names, "visible 1,0; split 2 --gpu 0")

    assert names == {"0": "GPU:1 GPU:2", "1": "GPU:0"}


def test_hidden_gpus_are_shown_as_hidden() -> None:
    with Machine.create("2x8GiB") as machine:
        assert "hidden" in run(machine, _text, "visible 1; growth")


def test_gpus_that_are_hidden_by_the_variable_when_a_limit_has_made_their_list_are_said_to_be_seen() -> None:
    with Machine.create("2x8GiB") as machine:
        hidden, seen, ready = run(machine, _hide_late)

    assert "CUDA_VISIBLE_DEVICES='1' was not set by %tf_gpu." in hidden
    assert "CUDA_VISIBLE_DEVICES='1' has no effect: it was set after the list of GPUs was made. Write" in seen
    assert "`%tf_gpu visible` instead, with --restart." in ready


def test_where_cuda_has_not_read_the_variable_it_is_not_said_to_be_late() -> None:
    """As in a child that was forked, and with TensorFlow for the CPU alone, which lists its devices without CUDA."""
    with Machine.create("2x8GiB") as machine:
        assert "CUDA_VISIBLE_DEVICES='1' was not set by %tf_gpu." in run(machine, _hide_in_a_fork)


def test_a_kernel_with_tensorflow_ready_is_answered_though_nvml_hangs() -> None:
    with Machine.create("2x8GiB") as machine:
        for function, text in run(machine, _look_while_it_hangs):
            assert "NVML did not answer" in text, function
            assert "is using the GPUs" in text, function


def test_without_a_driver_there_is_a_friendly_page() -> None:
    with Machine.create("1x8GiB") as machine:
        machine.remove_driver()
        text = run(machine, _text, "")

    assert "python -m tfgpu_magic.simgpu" in text
    assert "Traceback" not in text


@pytest.mark.parametrize(("before", "policy"), [(listed, "default: no limit"), (ready, "default: up to 6.1 GiB")])
def test_a_gpu_that_tensorflow_leaves_out_hinders_no_look(before: Callable[[], None], policy: str) -> None:
    with Machine.create("8GiB:sm=4,8GiB") as machine:
        rows = run(machine, _rows_after, before)

    assert rows == [("0", "", "not used by TensorFlow"), ("1", "GPU:0", policy)]


def test_growth_that_was_asked_while_nvml_hung_is_in_force_when_it_answers() -> None:
    with Machine.create("1x8GiB") as machine:
        text, in_force = run(machine, _ask_while_it_hangs)

    assert "In force: `growth`" in text
    assert in_force


def _seen() -> Status:
    """Look for as long as it takes: within a second and a half a busy machine may have no answer of the driver."""
    return tfgpu_magic.status(timeout=PATIENCE)


def _rows_after(before: Callable[[], None]) -> list[tuple[str, str, str]]:
    before()
    return [(row.gpu, row.logical, row.policy) for row in _seen().table.gpus]


def _ask_while_it_hangs() -> tuple[str, bool]:
    machine = Machine.current()
    assert machine is not None
    machine.hang("nvmlDeviceGetMemoryInfo", 60)
    tfgpu_magic.apply("growth")
    machine.clear_faults()
    first_op()
    return repr(_seen()), tfgpu_magic.apply("growth").in_force


def _look(words: str) -> list[tuple[str, bool, list[int], list[int]]]:
    """Look at each stage that TensorFlow comes to, and tell whether it stays there, and what is held."""
    seen = []
    for before in (nothing, listed, user_growth, ready):
        before()
        if words and before is not ready:
            tfgpu_magic.apply(words)
        stage, sizes = current_stage(), held()
        assert "Simulated" in repr(_seen())
        seen.append((before.__name__, current_stage() is stage, sizes, held()))
        if before is not ready:
            tfgpu_magic.apply("default")
    return seen


def _use_a_gpu() -> tuple[object, list[int]]:
    import tensorflow as tf

    tfgpu_magic.apply("limit 2GiB")
    kept = tf.zeros(512 * MIB // 4)
    more = tf.zeros(256 * MIB // 4)
    del more
    row = _seen().table.gpus[0]
    assert kept.shape[0]
    return row, held()


def _text_of_a_used_gpu() -> str:
    _use_a_gpu()
    return repr(_seen())


def _hide_late() -> list[str]:
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    found = [_text("")]
    del os.environ["CUDA_VISIBLE_DEVICES"]
    tfgpu_magic.apply("limit 2GiB")
    for do in (nothing, first_op):
        do()
        os.environ["CUDA_VISIBLE_DEVICES"] = "1"
        found.append(_text(""))
    return found


def _hide_in_a_fork() -> str:
    listed()
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.environ["CUDA_VISIBLE_DEVICES"] = "1"
            os.write(theirs, _text("").encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    return os.read(ours, 65536).decode()


def _names(words: str) -> dict[str, str]:
    first_op(words)
    return {row.gpu: row.logical for row in _seen().table.gpus}


def _text(words: str) -> str:
    if words:
        tfgpu_magic.apply(words)
    return repr(_seen())


def _look_while_it_hangs() -> list[tuple[str, str]]:
    import tensorflow as tf

    with tf.device("CPU"):
        tf.constant(1.0)
    machine = Machine.current()
    assert machine is not None
    seen = []
    lists = ("nvmlDeviceGetCount", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses")
    for function in ("nvmlInit", *lists):
        machine.hang(function, 3600)
        seen.append((function, repr(tfgpu_magic.status())))
        machine.clear_faults()
    return seen
