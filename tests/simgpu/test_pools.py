"""The stand-in's memory pools keep to CUDA's documentation: Driver API, "Stream Ordered Memory Allocator"."""

from __future__ import annotations

import pytest

from tests.machines import machine_of
from tests.processes import program, run
from tests.simgpu import pools_on_machine as pools
from tests.simgpu.on_machine import allocate
from tests.sizes import GIB, MIB
from tfgpu_magic.simgpu import Machine

machine = machine_of("8GiB", scope="function")

INVALID_VALUE = 1
OUT_OF_MEMORY = 2


def test_freed_memory_is_held_until_it_is_trimmed(machine: Machine) -> None:
    assert run(machine, pools.freed_then_trimmed) == [512, 512, 0]


@pytest.mark.parametrize("what", pools.SYNCHRONISE)
def test_whoever_waits_gives_back_what_passes_the_release_threshold(machine: Machine, what: str) -> None:
    assert run(machine, pools.freed_then_synchronised, what, 0) == [576, 64, 0]
    assert run(machine, pools.freed_then_synchronised, what, 128 * MIB) == [576, 128, 128]


def test_the_release_threshold_is_nothing_at_first(machine: Machine) -> None:
    assert run(machine, pools.default_threshold) == [0]


def test_what_nobody_has_waited_for_cannot_be_trimmed(machine: Machine) -> None:
    assert run(machine, pools.trimmed_before_a_synchronise) == [512, 0]


def test_what_is_in_use_stays_and_so_does_what_is_to_be_kept(machine: Machine) -> None:
    assert run(machine, pools.trimmed_to, 2 * GIB, 768 * MIB, 1 * GIB, 0) == [1024, 768, 768, 512]


def test_freed_memory_is_used_again_before_more_is_taken(machine: Machine) -> None:
    assert run(machine, pools.used_again) == [512, 576, 576, 576]


def test_attributes_tell_what_is_reserved_and_used_and_the_most_of_both() -> None:
    with Machine.create("8GiB") as machine:
        found = run(machine, pools.attributes)

    assert found == [[0, 0, 0, 0], [576, 576, 576, 576], [576, 576, 64, 576], [64, 576, 64, 576], [64, 64, 16, 16]]


def test_what_there_is_cannot_be_set_and_a_high_only_to_nothing(machine: Machine) -> None:
    assert run(machine, pools.wrong_attributes) == [INVALID_VALUE] * 5


def test_the_processs_own_unused_memory_is_there_for_plain_allocations(machine: Machine) -> None:
    assert run(machine, pools.plain_memory_of_a_full_gpu) == (0, [6 * 1024, 0])


def test_to_other_processes_unused_memory_is_held() -> None:
    with Machine.create("8GiB") as machine, program(machine, pools.unused, 6 * GIB) as holder:
        assert holder.answer == 6 * 1024
        assert run(machine, allocate, 6 * GIB) == [0, 0, OUT_OF_MEMORY]


def test_the_default_pool_cannot_be_destroyed_and_another_ends_with_its_last_allocation(machine: Machine) -> None:
    assert run(machine, pools.destroyed) == [INVALID_VALUE, 512, 0]


def test_plain_stream_ordered_allocations_come_from_the_devices_pool(machine: Machine) -> None:
    assert run(machine, pools.of_the_devices_pool) == [64, 0, 64, 64, 1]


def test_a_reset_leaves_nothing_of_a_pool(machine: Machine) -> None:
    assert run(machine, pools.after_a_reset) == 0
