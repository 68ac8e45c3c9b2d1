"""The real TensorFlow on the simulated machine: the driver's account is what TensorFlow was told."""

from __future__ import annotations

import os
import signal

import pytest

from tests.processes import program, run
from tests.simgpu.on_machine import fit, fit_layers, held_with, listed, results, zeros
from tests.sizes import CONTEXT, GIB, MIB
from tfgpu_magic.simgpu import Machine

POOL_RESERVE = 1536 * MIB
"""What TensorFlow 2.16 to 2.21 leave free of a large GPU of compute capability 8."""


def test_by_default_tensorflow_takes_all_but_its_reserve() -> None:
    with Machine.create("8GiB") as machine:
        held, _ = run(machine, held_with, "default")

        assert held == 8 * GIB - machine.gpus()[0].reserved - POOL_RESERVE


def test_with_growth_it_takes_little_more_than_it_uses() -> None:
    with Machine.create("8GiB") as machine:
        held, [pool] = run(machine, held_with, "growth")

    assert pool["current"] <= held - CONTEXT <= 2 * pool["current"]


def test_a_limit_holds_to_the_byte() -> None:
    with Machine.create("8GiB") as machine:
        held, [pool] = run(machine, held_with, "limits 2048")

    assert held == 2048 * MIB + CONTEXT
    assert 64 * MIB <= pool["current"] < 65 * MIB


def test_a_split_gpu_has_a_pool_for_each_part_and_one_context() -> None:
    with Machine.create("8GiB") as machine:
        held, pools = run(machine, held_with, "limits 1024 512")

    assert held == (1024 + 512) * MIB + CONTEXT
    assert len(pools) == 2


def test_growth_within_a_limit_grows() -> None:
    with Machine.create("8GiB") as machine:
        held, _ = run(machine, held_with, "limits 2048", env={"TF_FORCE_GPU_ALLOW_GROWTH": "true"})

    assert 64 * MIB + CONTEXT <= held <= 128 * MIB + CONTEXT


def test_the_asynchronous_allocator_takes_what_is_used() -> None:
    with Machine.create("8GiB") as machine:
        held, [pool] = run(machine, held_with, "default", env={"TF_GPU_ALLOCATOR": "cuda_malloc_async"})

    assert pool["current"] <= held - CONTEXT < pool["current"] + MIB


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
    with Machine.create("8GiB:sm=4,16GiB") as machine:
        assert run(machine, listed) == ["Simulated GPU 16GiB"]


def test_copies_are_true_and_nothing_is_computed() -> None:
    with Machine.create("8GiB") as machine:
        copied, computed = run(machine, results)

    assert copied == [1.0, 2.0, 3.0]
    assert computed == [0.0]


@pytest.mark.parametrize(
    ("gpus", "replicas", "limits"),
    [("8GiB", 1, ()), ("8GiB", 2, (1024, 1024)), ("2x8GiB", 2, ())],
    ids=["one GPU", "one GPU split in two", "two GPUs"],
)
def test_keras_trains(gpus: str, replicas: int, limits: tuple[int, ...]) -> None:
    with Machine.create(gpus) as machine:
        in_sync, weights = run(machine, fit, replicas, limits)

    assert in_sync == replicas
    assert weights == [16 * 32, 32, 32 * 10, 10]


def test_convolutions_and_recurrent_layers_train_too() -> None:
    with Machine.create("8GiB") as machine:
        assert run(machine, fit_layers) == ["convolution", "recurrent", "normalised"]
