"""What these tests do with CUDA's memory pools in a process on the simulated machine."""

from __future__ import annotations

import ctypes
import os

from tests.simgpu.on_machine import allocate, cuda
from tests.sizes import CONTEXT, GIB, MIB
from tfgpu_magic.simgpu import Machine

THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH = range(4, 9)
SYNCHRONISE = ("stream", "event", "context")
"""What one can wait for, after which it is known which memory is free."""


class Pool:
    """A memory pool of the first GPU: the default one, or one that is made."""

    def __init__(self, *, made: bool = False) -> None:
        assert not any(allocate())
        self.handle = ctypes.c_void_p()
        properties = (ctypes.c_int * 22)(1, 0, 1, 0)  # pinned, not shared, on device 0
        function, which = ("cuMemPoolCreate", properties) if made else ("cuDeviceGetDefaultMemPool", 0)
        assert cuda(function, ctypes.byref(self.handle), which) == 0

    def set(self, attribute: int, size: int) -> int:
        return cuda("cuMemPoolSetAttribute", self.handle, attribute, ctypes.byref(ctypes.c_uint64(size)))

    def get(self, *attributes: int) -> list[int]:
        """Return attributes in MiB."""
        sizes = [ctypes.c_uint64() for _ in attributes]
        for attribute, size in zip(attributes, sizes, strict=True):
            assert cuda("cuMemPoolGetAttribute", self.handle, attribute, ctypes.byref(size)) == 0
        return [size.value // MIB for size in sizes]

    def allocate(self, size: int) -> ctypes.c_uint64:
        at = ctypes.c_uint64()
        length = ctypes.c_size_t(size)
        assert cuda("cuMemAllocFromPoolAsync", ctypes.byref(at), length, self.handle, None) == 0
        return at

    def trim(self, keep: int = 0) -> int:
        return cuda("cuMemPoolTrimTo", self.handle, ctypes.c_size_t(keep))

    def destroy(self) -> int:
        return cuda("cuMemPoolDestroy", self.handle)


def free(at: ctypes.c_uint64) -> None:
    assert cuda("cuMemFreeAsync", at, None) == 0


def synchronise(what: str = "context") -> None:
    """Wait for a stream, an event or the context."""
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


# --- what a process does; each returns what was held after each step, in MiB ---


def freed_then_trimmed() -> list[int]:
    pool = Pool()
    pool.set(THRESHOLD, GIB)
    at = pool.allocate(512 * MIB)
    found = [held()]
    free(at)
    synchronise()
    found.append(held())
    assert pool.trim() == 0
    return [*found, held()]


def freed_then_synchronised(what: str, threshold: int) -> list[int]:
    pool = Pool()
    pool.set(THRESHOLD, threshold)
    first, second = pool.allocate(512 * MIB), pool.allocate(64 * MIB)
    free(first)
    found = [held()]
    synchronise(what)
    found.append(held())
    free(second)
    synchronise(what)
    return [*found, held()]


def default_threshold() -> list[int]:
    return Pool().get(THRESHOLD)


def trimmed_before_a_synchronise() -> list[int]:
    pool = Pool()
    pool.set(THRESHOLD, GIB)
    free(pool.allocate(512 * MIB))
    assert pool.trim() == 0
    found = [held()]
    synchronise()
    assert pool.trim() == 0
    return [*found, held()]


def trimmed_to(*keep: int) -> list[int]:
    """Have 512 MiB in use and as much unused, and trim to each size."""
    pool = Pool()
    pool.set(THRESHOLD, 2 * GIB)
    kept, at = pool.allocate(512 * MIB), pool.allocate(512 * MIB)
    free(at)
    synchronise()
    found = []
    for size in keep:
        assert pool.trim(size) == 0
        found.append(held())
    free(kept)
    return found


def used_again() -> list[int]:
    pool = Pool()
    pool.set(THRESHOLD, GIB)
    free(pool.allocate(512 * MIB))
    several = [pool.allocate(256 * MIB) for _ in range(2)]
    found = [held()]
    several.append(pool.allocate(64 * MIB))
    return [*found, held(), *pool.get(USED, RESERVED)]


def attributes() -> list[list[int]]:
    """Return reserved, its high, used and its high: at first, after an allocation, a free, a trim and a reset."""
    pool = Pool()
    pool.set(THRESHOLD, GIB)
    every = (RESERVED, RESERVED_HIGH, USED, USED_HIGH)
    found = [pool.get(*every)]
    at, other = pool.allocate(512 * MIB), pool.allocate(64 * MIB)
    found.append(pool.get(*every))
    free(at)
    synchronise()
    found.append(pool.get(*every))
    pool.trim()
    found.append(pool.get(*every))
    assert pool.set(RESERVED_HIGH, 0) == pool.set(USED_HIGH, 0) == 0
    free(other)
    pool.allocate(16 * MIB)
    found.append(pool.get(*every))
    return found


def wrong_attributes() -> list[int]:
    """Return what is answered to attributes that cannot be set, or not to that."""
    pool = Pool()
    wrong = ((RESERVED, 0), (USED, 0), (RESERVED_HIGH, 1), (USED_HIGH, 1), (9, 0))
    return [pool.set(attribute, size) for attribute, size in wrong]


def plain_memory_of_a_full_gpu() -> tuple[int, list[int]]:
    """Leave 6 GiB unused in a pool of 8 GiB, and allocate as much plainly; its answer, and the pool's size."""
    pool = Pool()
    pool.set(THRESHOLD, 8 * GIB)
    free(pool.allocate(6 * GIB))
    synchronise()
    at = ctypes.c_uint64()
    return cuda("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(6 * GIB)), [held(), *pool.get(RESERVED)]


def unused(size: int) -> int:
    """Leave so much unused in a pool, and hold it until the process is told to end."""
    pool = Pool()
    pool.set(THRESHOLD, 8 * GIB)
    free(pool.allocate(size))
    synchronise()
    return held()


def destroyed() -> list[int]:
    default, pool = Pool(), Pool(made=True)
    answer = default.destroy()
    at = pool.allocate(512 * MIB)
    assert pool.destroy() == 0
    found = [answer, held()]
    free(at)
    return [*found, held()]


def of_the_devices_pool() -> list[int]:
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


def after_a_reset() -> int:
    """Return what is held beside a context when the device was reset, and a context was made again."""
    pool = Pool()
    pool.set(THRESHOLD, GIB)
    pool.allocate(512 * MIB)
    assert cuda("cuDevicePrimaryCtxReset_v2", 0) == 0
    assert not any(allocate())
    return held()
