"""Parking on a real NVIDIA GPU, NVML and checksums the judges, with the traps that are safe to try (``-m gpu``)."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

import tfgpu_magic
from tests.parking import on_machine
from tests.parking.conftest import park, unpark
from tests.processes import program, run
from tests.simgpu.checkpoint_on_machine import hold_plain
from tests.sizes import GIB, MIB
from tests.waiting import until
from tfgpu_magic.parking import facts
from tfgpu_magic.parking import refusals as why

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        facts.open_module() is not False, reason="with the open kernel module a test's end may stop the machine"
    ),
]

FUNCTIONS: dict[str, tuple[Callable[..., on_machine.Seen], tuple[int, ...]]] = {
    "tensorflow": (on_machine.trained, ()),
    "torch": (on_machine.torch_array, ()),
    "": (on_machine.filled, (GIB,)),
}


@pytest.mark.parametrize("framework", FUNCTIONS)
def test_what_a_program_has_comes_back_bit_by_bit(framework: str) -> None:
    if framework and importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    function, arguments = FUNCTIONS[framework]
    growth = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    seen: on_machine.Seen = run(None, function, *arguments, env=growth, fresh=True)

    assert seen.refusals == []
    assert seen.same
    assert seen.held[1] == 0
    assert abs(seen.held[2] - seen.held[0]) < 64 * MIB
    assert min(seen.rates) > 0.1e9


def test_managed_memory_is_known_by_its_mappings() -> None:
    assert run(None, on_machine.with_managed_memory, fresh=True) == ["managed-memory"]


def test_a_process_waits_for_room_that_others_have_taken() -> None:
    with program(None, hold_plain, GIB, fresh=True) as held:
        assert park(held.pid).done
        waited: list[str] = []
        room: Any = tfgpu_magic.look().gpus[0].free
        with program(None, hold_plain, (room - GIB) // MIB * MIB, fresh=True):
            gone = unpark(held.pid, tell=lambda said: waited.append(said.step), wanted=lambda: "waits" not in waited)
            assert gone.refusals == (why.CANCELLED(),)
        assert unpark(held.pid).done


def test_a_process_that_is_killed_while_it_is_parked_leaves_nothing() -> None:
    with program(None, hold_plain, GIB, fresh=True) as held:
        assert park(held.pid).done
        os.kill(held.pid, signal.SIGKILL)
        until(lambda: all(row.pid != held.pid for row in tfgpu_magic.look().processes))
