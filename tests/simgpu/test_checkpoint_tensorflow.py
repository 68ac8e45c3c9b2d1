"""A checkpoint of the real TensorFlow on the simulated machine: what it trained comes back bit by bit."""

from __future__ import annotations

import pytest

from tests.simgpu.checkpoint_on_machine import OK
from tests.simgpu.talking import talker
from tests.sizes import GIB
from tfgpu_magic.simgpu import Machine


@pytest.mark.parametrize("allocator", ["default", "cuda_malloc_async"])
def test_a_model_that_was_away_while_another_program_filled_the_gpu_is_as_it_was(allocator: str) -> None:
    variables = {} if allocator == "default" else {"TF_GPU_ALLOCATOR": allocator}
    with Machine.create("8GiB") as machine, talker(machine, **variables) as kernel, talker(machine) as caller:
        before = kernel.ask("train()")
        held = machine.held(pid=kernel.pid)
        assert held > (6 * GIB if allocator == "default" else 0)
        for _ in range(3):
            assert caller.ask(f"park({kernel.pid})") == [OK, OK]
            assert machine.held() == 0
            with talker(machine) as other:
                assert other.ask("allocate(7 * GIB)") == [OK, OK, OK]
            assert caller.ask(f"unpark({kernel.pid})") == [OK, OK]
            assert machine.held() == machine.held(pid=kernel.pid) == held
            assert kernel.ask("digest()") == before
        assert kernel.ask("train()") != ""


def test_an_operation_on_a_gpu_whose_memory_is_away_waits_and_then_is_done() -> None:
    with Machine.create("8GiB") as machine, talker(machine, "train()") as kernel, talker(machine) as caller:
        assert caller.ask(f"park({kernel.pid})") == [OK, OK]
        kernel.say("train()")
        assert not kernel.answers(1)
        assert caller.ask(f"unpark({kernel.pid})") == [OK, OK]
        assert kernel.hear()
