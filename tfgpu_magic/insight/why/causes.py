"""Decides why a GPU had no memory left, from what the error, the pool and the driver tell. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgpu_magic.units import MIB

if TYPE_CHECKING:
    from tfgpu_magic.frameworks.pool import Pool
    from tfgpu_magic.frameworks.shortage import Shortage
    from tfgpu_magic.insight.why.explanation import Cause
    from tfgpu_magic.model.rows import GpuRow

LIBRARY_ROOM = 512 * MIB
"""Bytes that CUDA's libraries may want beside a pool when they start: where more is free, they failed for another
reason."""


def is_memory(shortage: Shortage, gpu: GpuRow | None) -> bool:
    """Tell whether an error is really about memory: a library that cannot start does not say why."""
    if shortage.certain:
        return True
    return gpu is not None and gpu.free is not None and gpu.free < LIBRARY_ROOM


def find(shortage: Shortage, pool: Pool | None, gpu: GpuRow | None, *, started: bool) -> Cause:
    """Return why there was no memory.

    Args:
        shortage: what the error says.
        pool: the pool that had none.
        gpu: the GPU that it is on.
        started: whether the framework had started.
    """
    size, free = shortage.size, None if gpu is None else gpu.free
    if not started:
        return "start"
    if shortage.kind == "library":
        return "library"
    if size is not None and gpu is not None and gpu.total is not None and size > gpu.total:
        return "size"
    if shortage.kind == "driver" or pool is None:
        return "gpu" if free is not None and free < max(size or 0, LIBRARY_ROOM) else "unknown"
    grows_no_more = pool.grows and free is not None and free < (LIBRARY_ROOM if size is None else size)
    if pool.limit is not None and (pool.level + (size or 0) > pool.limit or (size is None and not grows_no_more)):
        return "limit" if pool.capped else "pool"
    in_pieces = size is not None and pool.room >= size
    if grows_no_more and not (in_pieces and pool.taken is not None):
        return "gpu"
    return "pieces" if in_pieces else "unknown"
