"""The real TensorFlow parks itself on a simulated machine and comes back; `tests/gpu` has the same on a real GPU."""

from __future__ import annotations

import pytest

from tests.parking import on_machine
from tests.processes import run
from tests.sizes import CONTEXT, GIB
from tfgpu_magic.simgpu import Machine


@pytest.mark.parametrize("gpus", ["1x8GiB"])
@pytest.mark.parametrize("allocator", ["", "cuda_malloc_async"])
def test_a_trained_model_comes_back_bit_by_bit_and_is_trained_on(machine: Machine, allocator: str) -> None:
    growth = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    seen = run(machine, on_machine.trained, env=growth | ({"TF_GPU_ALLOCATOR": allocator} if allocator else {}))

    assert seen.refusals == []
    assert seen.same
    assert seen.held[0] == seen.held[2] > CONTEXT
    assert seen.held[1] == 0


def test_a_gpu_that_tensorflow_fills_is_not_left_since_the_way_back_is_not_sure(machine: Machine) -> None:
    """Of a small GPU TensorFlow takes nearly all by default; a limit or growth leaves the room that a return needs."""
    seen = run(machine, on_machine.trained)

    assert set(seen.refusals) == {"no-way-back"}
    assert seen.same
    assert seen.held[0] == seen.held[1] == seen.held[2]


def test_plain_memory_comes_back_as_it_was(machine: Machine) -> None:
    seen = run(machine, on_machine.filled, GIB)

    assert (seen.refusals, seen.same) == ([], True)
    assert seen.held == (GIB + CONTEXT, 0, GIB + CONTEXT)


def test_managed_memory_is_refused(machine: Machine) -> None:
    assert run(machine, on_machine.with_managed_memory) == ["managed-memory"]
