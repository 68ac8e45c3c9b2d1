"""PyTorch's tensors on GPUs, and their gradients, which PyTorch holds beside them.

Source: PyTorch 2.13, `torch.Tensor.untyped_storage`, "CUDA semantics": its allocator counts in units of 512 bytes.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from tfgpu_magic.frameworks.array import Array, allocated
from tfgpu_magic.frameworks.objects import Objects, derived_from

_UNIT = 512


def arrays(objects: Objects) -> list[Array]:
    """Return the tensors among objects that have memory of a GPU, with their gradients; views share an address."""
    torch: Any = sys.modules["torch"]
    kinds = frozenset(map(id, derived_from(torch.Tensor)))
    found: list[Array] = []
    # Its errors have no common root; one tensor that cannot be asked hides no other.
    unless_it_fails = contextlib.suppress(Exception)
    # A subclass may have code of its user's for every attribute.
    with torch._C.DisableTorchFunctionSubclass():
        for thing in objects.of(kinds):
            with unless_it_fails:
                found += _tensors(thing)
    return found


def _tensors(tensor: Any) -> Iterator[Array]:
    if tensor.is_cuda and tensor.untyped_storage().nbytes():
        yield _array(tensor, tensor, "")
        if tensor.is_leaf and tensor.grad is not None:  # of others PyTorch warns, and has none
            yield _array(tensor, tensor.grad, ".grad")


def _array(thing: object, tensor: Any, part: str) -> Array:
    storage = tensor.untyped_storage()
    return Array(
        thing=thing,
        what="gradient" if part else "tensor",
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        size=allocated(storage.nbytes(), _UNIT),
        device=f"cuda:{tensor.get_device()}",
        address=storage.data_ptr(),
        part=part,
    )
