"""The status in a kernel: TensorFlow's own figures beside the driver's, and nothing woken by looking.

Without a driver, and with hidden GPUs, it is in `transcript.txt`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import pytest

import tfgpu_magic
from tests.processes import PATIENCE, on
from tests.sizes import CONTEXT, GIB, MIB
from tests.tf.on_machine import first_op, held, here, in_a_fork, zeros
from tests.tf.test_calls import listed, nothing, ready, user_growth
from tfgpu_magic.engine.status import Status
from tfgpu_magic.frameworks.tensorflow.devices import current_stage


def seen() -> Status:
    """Look for as long as it takes: within a second and a half a busy machine may have no answer of the driver."""
    return tfgpu_magic.status(timeout=PATIENCE)


@pytest.mark.parametrize("words", ["default", "limit 1GiB", "visible 1"])
@on("8GiB,16GiB")
def test_looking_moves_tensorflow_no_further(words: str) -> None:
    for before in (nothing, listed, user_growth, ready):
        before()
        if before is not ready:
            tfgpu_magic.apply(words)
        stage, sizes = current_stage(), held()

        assert "Simulated" in repr(seen())

        assert (current_stage(), held()) == (stage, sizes), before
        if before is not ready:
            tfgpu_magic.apply("default")


@on("2x8GiB")
def test_figures_are_tensorflows_own_and_the_drivers_named_apart() -> None:
    tfgpu_magic.apply("limit 2GiB")
    kept = zeros(512 * MIB)
    zeros(256 * MIB)

    row = seen().table.gpus[0]

    assert (row.own.names, row.own.policy) == ("GPU:0", "limit 2 GiB")
    in_use, peak = row.own.figures
    assert 512 * MIB <= in_use.size < 520 * MIB
    assert peak.size >= 768 * MIB
    assert row.gpu.used == held()[0] == 2 * GIB + CONTEXT
    assert kept.shape


@on("1x8GiB")
def test_what_the_driver_does_not_tell_is_not_available_and_tensorflows_own_figures_stand() -> None:
    """As under WSL 2."""
    tfgpu_magic.apply("limit 2GiB")
    kept = zeros(512 * MIB)
    zeros(256 * MIB)
    here().hide_memory()

    text = repr(seen())

    assert re.search(r"peak +0\.8 GiB +limit 2 GiB$", text, re.MULTILINE)
    assert re.search(r"this program +N/A$", text, re.MULTILINE)
    assert kept.shape


@on("8GiB,16GiB")
def test_each_logical_gpu_has_its_name_beside_nvidia_smis_number() -> None:
    first_op("visible 1,0; split 2 --gpu 0")

    assert {row.gpu.label: row.own.names for row in seen().table.gpus} == {"0": "GPU:1 GPU:2", "1": "GPU:0"}


def hide() -> str:
    """Set the variable as a user does; return what the status says."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    return repr(seen())


@on("2x8GiB")
def test_gpus_that_are_hidden_by_the_variable_when_a_limit_has_made_their_list_are_said_to_be_seen() -> None:
    assert "CUDA_VISIBLE_DEVICES='1' was not set by %tf_gpu." in hide()
    del os.environ["CUDA_VISIBLE_DEVICES"]
    tfgpu_magic.apply("limit 2GiB")

    assert "CUDA_VISIBLE_DEVICES='1' has no effect: it was set after the list of GPUs was made." in hide()
    first_op()
    assert "`%tf_gpu visible` instead, with --restart." in hide()


@on("2x8GiB")
def test_where_cuda_has_not_read_the_variable_it_is_not_said_to_be_late() -> None:
    """As in a child that was forked, and with TensorFlow for the CPU alone, which lists its devices without CUDA."""
    listed()

    assert "CUDA_VISIBLE_DEVICES='1' was not set by %tf_gpu." in in_a_fork(hide)


@on("2x8GiB")
def test_a_kernel_with_tensorflow_ready_is_answered_though_nvml_hangs() -> None:
    import tensorflow as tf

    with tf.device("CPU"):
        tf.constant(1.0)
    lists = ("nvmlDeviceGetCount", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses")
    for function in ("nvmlInit", *lists):
        here().hang(function, 3600)

        text = repr(tfgpu_magic.status())

        assert "NVML did not answer" in text, function
        assert "is using the GPUs" in text, function
        here().clear_faults()


@pytest.mark.parametrize(("before", "policy"), [(listed, "default: no limit"), (ready, "default: up to 6.1 GiB")])
@on("8GiB:sm=4,8GiB")
def test_a_gpu_that_tensorflow_leaves_out_hinders_no_look(before: Callable[[], None], policy: str) -> None:
    before()

    rows = [(row.gpu.label, row.own.names, row.own.policy) for row in seen().table.gpus]

    assert rows == [("0", "", "not used by TensorFlow"), ("1", "GPU:0", policy)]


@on("1x8GiB")
def test_growth_that_was_asked_while_nvml_hung_is_in_force_when_it_answers() -> None:
    here().hang("nvmlDeviceGetMemoryInfo", 60)
    tfgpu_magic.apply("growth")
    here().clear_faults()
    first_op()

    assert "In force: `growth`" in repr(seen())
    assert tfgpu_magic.apply("growth").in_force
