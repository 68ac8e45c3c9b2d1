"""The real TensorFlow on the simulated machine; that each limit is in force there, to the byte, is in `tests/tf`."""

from __future__ import annotations

import os
import signal

import pytest

from tests.processes import program, run
from tests.simgpu.on_machine import fit, fit_layers, grown, listed, results, zeros
from tests.sizes import CONTEXT, GIB, MIB
from tfgpu_magic.simgpu import Machine

pytestmark = pytest.mark.nightly

POOL_RESERVE = 1536 * MIB
"""What TensorFlow 2.16 to 2.21 leave free of a large GPU of compute capability 8."""


def test_by_default_tensorflow_takes_all_but_its_reserve() -> None:
    with Machine.create("8GiB") as machine:
        held, _ = run(machine, grown)

        assert held == 8 * GIB - machine.gpus()[0].reserved - POOL_RESERVE


def test_the_asynchronous_allocator_takes_what_is_used() -> None:
    held, current = run("8GiB", grown, env={"TF_GPU_ALLOCATOR": "cuda_malloc_async"})

    assert current <= held - CONTEXT < current + MIB


def test_a_second_program_runs_out_of_memory_and_the_first_ones_end_gives_it_back() -> None:
    growth = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    with Machine.create("8GiB") as machine:
        with program(machine, zeros, 6144, env=growth) as first:
            assert first.answer == ("", "")
            error, text = run(machine, zeros, 4096, env=growth)

            assert error == "ResourceExhaustedError"
            assert "OOM when allocating tensor" in text
            assert machine.held(gpu=0) == machine.held(pid=first.pid) > 6 * GIB

            os.kill(first.pid, signal.SIGKILL)
        assert machine.held() == 0
        assert run(machine, zeros, 4096, env=growth) == ("", "")


def test_with_less_than_a_context_left_tensorflow_cannot_start() -> None:
    with Machine.create("8GiB") as machine:
        machine.add_neighbour("7.8GiB@0")

        error, text = run(machine, zeros, 1)

    assert error == "InternalError"
    assert "out of memory" in text


def test_a_gpu_of_few_multiprocessors_is_skipped() -> None:
    assert run("8GiB:sm=4,16GiB", listed) == ["Simulated GPU 16GiB"]


def test_copies_are_true_and_nothing_is_computed() -> None:
    copied, computed = run("8GiB", results)

    assert copied == [1.0, 2.0, 3.0]
    assert computed == [0.0]


def test_keras_trains_on_two_gpus() -> None:
    assert run("2x8GiB", fit) == (2, [16 * 32, 32, 32 * 10, 10])


def test_convolutions_and_recurrent_layers_train_too() -> None:
    assert run("8GiB", fit_layers) == ["convolution", "recurrent", "normalised"]
