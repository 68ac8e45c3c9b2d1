"""The stand-in's memory pools keep to CUDA's documentation: Driver API, "Stream Ordered Memory Allocator"."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.machines import machine_of
from tests.processes import program, run
from tests.simgpu.on_machine import RESERVED, RESERVED_HIGH, THRESHOLD, USED, USED_HIGH, Pool, allocate, cuda
from tests.sizes import CONTEXT, GIB, MIB
from tfgpu_magic.simgpu import Machine

machine = machine_of("8GiB", scope="function")

INVALID_VALUE = 1
OUT_OF_MEMORY = 2


# --- what a process does; each returns what was held after each step, in MiB ---


def free(at: ctypes.c_uint64) -> None:
    assert cuda("cuMemFreeAsync", at, None) == 0


def synchronise(what: str = "context") -> None:
    """Wait for a stream, an event or the context: then it is known which memory is free."""
    handle = ctypes.c_void_p()
    if what == "stream":
        assert cuda("cuStreamCreate", ctypes.byref(handle), 0) == cuda("cuStreamSynchronize", handle) == 0
    elif what == "event":
        assert cuda("cuEventCreate", ctypes.byref(handle), 0) == cuda("cuEventRecord", handle, None) == 0
        assert cuda("cuEventSynchronize", handle) == 0
    else:
        assert cuda("cuCtxSynchronize") == 0


def held() -> int:
    """Return what the driver accounts to this process beside its context, in MiB."""
    machine = Machine.current()
    assert machine is not None
    return (machine.held(pid=os.getpid()) - CONTEXT) // MIB


def keeping(size: int) -> Pool:
    """Return the default pool, which keeps so much that nobody uses."""
    pool = Pool()
    assert pool.set(THRESHOLD, size) == 0
    return pool


def freed_memory_is_held_until_it_is_trimmed() -> list[int]:
    pool = keeping(GIB)
    at = pool.allocate(512 * MIB)
    found = [held()]
    free(at)
    synchronise()
    found.append(held())
    assert pool.trim() == 0
    return [*found, held()]


def whoever_waits_gives_back_what_passes_the_release_threshold(what: str, threshold: int) -> list[int]:
    pool = keeping(threshold)
    first, second = pool.allocate(512 * MIB), pool.allocate(64 * MIB)
    free(first)
    found = [held()]
    synchronise(what)
    found.append(held())
    free(second)
    synchronise(what)
    return [*found, held()]


def the_release_threshold_is_nothing_at_first() -> list[int]:
    return Pool().get(THRESHOLD)


def what_nobody_has_waited_for_cannot_be_trimmed() -> list[int]:
    pool = keeping(GIB)
    free(pool.allocate(512 * MIB))
    assert pool.trim() == 0
    found = [held()]
    synchronise()
    assert pool.trim() == 0
    return [*found, held()]


def what_is_in_use_stays_and_so_does_what_is_to_be_kept(*keep: int) -> list[int]:
    pool = keeping(2 * GIB)
    pool.allocate(512 * MIB)
    free(pool.allocate(512 * MIB))
    synchronise()
    found = []
    for size in keep:
        assert pool.trim(size) == 0
        found.append(held())
    return found


def freed_memory_is_used_again_before_more_is_taken() -> list[int]:
    pool = keeping(GIB)
    free(pool.allocate(512 * MIB))
    for _ in range(2):
        pool.allocate(256 * MIB)
    found = [held()]
    pool.allocate(64 * MIB)
    return [*found, held(), *pool.get(USED, RESERVED)]


def attributes_tell_what_is_reserved_and_used_and_the_most_of_both() -> list[int]:
    """Return them at first, after an allocation, a free, a trim and a reset."""
    pool = keeping(GIB)
    every = (RESERVED, RESERVED_HIGH, USED, USED_HIGH)
    found = pool.get(*every)
    at, other = pool.allocate(512 * MIB), pool.allocate(64 * MIB)
    found += pool.get(*every)
    free(at)
    synchronise()
    found += pool.get(*every)
    pool.trim()
    found += pool.get(*every)
    assert pool.set(RESERVED_HIGH, 0) == pool.set(USED_HIGH, 0) == 0
    free(other)
    pool.allocate(16 * MIB)
    return found + pool.get(*every)


def what_there_is_cannot_be_set_and_a_high_only_to_nothing() -> list[int]:
    pool = Pool()
    wrong = ((RESERVED, 0), (USED, 0), (RESERVED_HIGH, 1), (USED_HIGH, 1), (9, 0))
    return [pool.set(attribute, size) for attribute, size in wrong]


def the_processs_own_unused_memory_is_there_for_plain_allocations() -> list[int]:
    pool = keeping(8 * GIB)
    free(pool.allocate(6 * GIB))
    synchronise()
    at = ctypes.c_uint64()
    return [cuda("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(6 * GIB)), held(), *pool.get(RESERVED)]


def the_default_pool_cannot_be_destroyed_and_another_ends_with_its_last_allocation() -> list[int]:
    default, pool = Pool(), Pool(made=True)
    answer = default.destroy()
    at = pool.allocate(512 * MIB)
    assert pool.destroy() == 0
    found = [answer, held()]
    free(at)
    return [*found, held()]


def plain_stream_ordered_allocations_come_from_the_devices_pool() -> list[int]:
    """Return what cuMemAllocAsync reserves of the default pool and of another: of the one that is the device's."""
    default, pool = Pool(), Pool(made=True)
    at, found = ctypes.c_uint64(), []
    for chosen in (default, pool):
        assert cuda("cuDeviceSetMemPool", 0, chosen.handle) == 0
        assert cuda("cuMemAllocAsync", ctypes.byref(at), ctypes.c_size_t(64 * MIB), None) == 0
        found += [*default.get(RESERVED), *pool.get(RESERVED)]
    assert pool.destroy() == 0
    now = ctypes.c_void_p()
    assert cuda("cuDeviceGetMemPool", ctypes.byref(now), 0) == 0
    return [*found, int(now.value == default.handle.value)]


def a_reset_leaves_nothing_of_a_pool() -> list[int]:
    keeping(GIB).allocate(512 * MIB)
    assert cuda("cuDevicePrimaryCtxReset_v2", 0) == 0
    assert not any(allocate())
    return [held()]


WAITS = whoever_waits_gives_back_what_passes_the_release_threshold


@pytest.mark.parametrize(
    ("scene", "args", "found"),
    [
        (freed_memory_is_held_until_it_is_trimmed, (), [512, 512, 0]),
        *((WAITS, (what, 0), [576, 64, 0]) for what in ("stream", "event", "context")),
        *((WAITS, (what, 128 * MIB), [576, 128, 128]) for what in ("stream", "event", "context")),
        (the_release_threshold_is_nothing_at_first, (), [0]),
        (what_nobody_has_waited_for_cannot_be_trimmed, (), [512, 0]),
        (
            what_is_in_use_stays_and_so_does_what_is_to_be_kept,
            (2 * GIB, 768 * MIB, GIB, 0),
            [1024, 768, 768, 512],
        ),
        (freed_memory_is_used_again_before_more_is_taken, (), [512, 576, 576, 576]),
        (
            attributes_tell_what_is_reserved_and_used_and_the_most_of_both,
            (),
            [*[0] * 4, *[576] * 4, *(576, 576, 64, 576), *(64, 576, 64, 576), *(64, 64, 16, 16)],
        ),
        (what_there_is_cannot_be_set_and_a_high_only_to_nothing, (), [INVALID_VALUE] * 5),
        (the_processs_own_unused_memory_is_there_for_plain_allocations, (), [0, 6 * 1024, 0]),
        (
            the_default_pool_cannot_be_destroyed_and_another_ends_with_its_last_allocation,
            (),
            [INVALID_VALUE, 512, 0],
        ),
        (plain_stream_ordered_allocations_come_from_the_devices_pool, (), [64, 0, 64, 64, 1]),
        (a_reset_leaves_nothing_of_a_pool, (), [0]),
    ],
    ids=lambda part: getattr(part, "__name__", None),
)
def test_of_a_pool(machine: Machine, scene: Callable[..., list[int]], args: tuple[Any, ...], found: list[int]) -> None:
    assert run(machine, scene, *args) == found


def unused(size: int) -> int:
    """Leave so much unused in a pool, and hold it until the process is told to end."""
    free(keeping(8 * GIB).allocate(size))
    synchronise()
    return held()


def test_to_other_processes_unused_memory_is_held(machine: Machine) -> None:
    with program(machine, unused, 6 * GIB) as holder:
        assert holder.answer == 6 * 1024
        assert run(machine, allocate, 6 * GIB) == [0, 0, OUT_OF_MEMORY]
