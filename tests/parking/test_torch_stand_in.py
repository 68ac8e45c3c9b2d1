"""What PyTorch has on a GPU leaves it and comes back, by the driver's account; `test_torch.py` has the real PyTorch.

The stand-in is what parking asks of PyTorch: tensors on storages, which the simulated driver gives memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tests.frameworks.cells_on_machine import STAND_IN
from tests.processes import run
from tests.simgpu.on_machine import allocate, cuda
from tests.sizes import CONTEXT, LITTLE, MIB
from tests.tf.on_machine import held
from tfgpu_magic.parking.arrays import MovedArrays


@dataclass(frozen=True)
class Device:
    type: str = "cpu"
    index: int | None = None


class Storage:
    _memory: Any

    def __init__(self, size: int, device: Device = Device()) -> None:
        self.device, self._cdata, self._memory = device, id(self), ctypes.c_uint64()
        self.resize_(size)

    def resizable(self) -> bool:
        return True

    def nbytes(self) -> int:
        return self._size

    def data_ptr(self) -> int:
        return int(self._memory.value) if self.device.type == "cuda" else ctypes.addressof(self._memory)

    def resize_(self, size: int) -> None:
        self._size = size
        if self.device.type == "cpu":
            self._memory = ctypes.create_string_buffer(size)
        elif size:
            assert cuda("cuMemAlloc_v2", ctypes.byref(self._memory), ctypes.c_size_t(size)) == 0
        else:
            assert cuda("cuMemFree_v2", self._memory) == 0
            self._memory.value = 0

    def copy_(self, other: Storage) -> None:
        there, here = ctypes.c_uint64(other.data_ptr()), ctypes.c_uint64(self.data_ptr())
        assert self._size == other._size
        assert cuda("cuMemcpy", here, there, ctypes.c_size_t(self._size)) == 0

    def content(self) -> bytes:
        host = Storage(self._size)
        host.copy_(self)
        return bytes(host._memory)


class Tensor:
    dtype, layout, is_leaf, grad, device = "torch.uint8", "strided", True, None, Device("cuda", 0)

    def __init__(self, size: int) -> None:
        self.shape, self._storage, filled = (size,), Storage(size, self.device), Storage(size)
        filled._memory.raw = os.urandom(size)
        self._storage.copy_(filled)

    def untyped_storage(self) -> Storage:
        return self._storage


def stand_in(*listed: Tensor) -> None:
    """Import a PyTorch whose allocator lists the memory of these tensors."""
    sys.path.insert(0, str(STAND_IN))
    module: Any = importlib.import_module("torch")
    module.cuda.current_device()  # from then on it uses the GPU
    module.Tensor, module.UntypedStorage = Tensor, Storage
    module._C = SimpleNamespace(DisableTorchFunctionSubclass=contextlib.nullcontext)
    module.distributed = SimpleNamespace(is_available=lambda: False)
    for layout in ("coo", "csr", "csc", "bsr", "bsc"):
        setattr(module, f"sparse_{layout}", layout)

    def snapshot() -> list[dict[str, Any]]:
        there = [(one._storage.data_ptr(), one._storage.nbytes()) for one in listed]
        blocks = [{"address": start, "size": size, "state": "active_allocated"} for start, size in there]
        return [{"stream": 0, "blocks": blocks}]

    module.cuda.memory = SimpleNamespace(get_allocator_backend=lambda: "native")
    module.cuda.memory_snapshot, module.cuda.CUDAGraph = snapshot, type("CUDAGraph", (), {})
    module.cuda.Stream = module.cuda.default_stream = module.cuda.synchronize = lambda _: None
    module.cuda.stream = contextlib.nullcontext


def there_and_back() -> tuple[list[int], bool, list[int], list[str]]:
    assert not any(allocate())
    large, small, lent = Tensor(64 * MIB), Tensor(1000), Tensor(MIB)
    stand_in(large, small)
    before, moves = [one._storage.content() for one in (large, small, lent)], MovedArrays()
    figures = held()
    moves.move_out()
    figures += held()
    sizes = [one._storage.nbytes() for one in (large, small, lent)]
    moves.move_back()
    figures += held()
    same = before == [one._storage.content() for one in (large, small, lent)]
    return figures, same, sizes, [str(one.why) for one in moves.stays]


def test_each_storage_leaves_and_comes_back_in_place_but_for_what_is_lent() -> None:
    (before, away, after), same, sizes, stays = run("8GiB", there_and_back)

    assert same
    assert before - CONTEXT > 65 * MIB
    assert (away in LITTLE, after) == (True, before)
    assert sizes == [0, 0, MIB]
    assert ["another library has lent" in why for why in stays] == [True]
