"""JAX's arrays on GPUs, as `jax.live_arrays` lists them.

Source: JAX 0.10, `jax.live_arrays`, `jax.Array.addressable_shards`; its allocator is XLA's, as TensorFlow's is.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from tfgpu_magic.frameworks.array import Array, allocated

_UNIT = 256


def arrays() -> Iterator[Array]:
    """Return the arrays that have memory of a GPU, one for each part of an array that is spread over several."""
    jax: Any = sys.modules["jax"]
    for array in jax.live_arrays():
        # Its errors have no common root; one array that is deleted meanwhile hides no other.
        with contextlib.suppress(Exception):
            if not array.is_deleted():
                yield from _shards(array)


def _shards(array: Any) -> Iterator[Array]:
    for shard in array.addressable_shards:
        if shard.device.platform == "gpu" and shard.data.nbytes:
            yield Array(
                thing=array,
                what="array",
                dtype=str(array.dtype),
                shape=tuple(shard.data.shape),
                size=allocated(shard.data.nbytes, _UNIT),
                device=f"cuda:{shard.device.local_hardware_id}",
                address=shard.data.unsafe_buffer_pointer(),
            )
