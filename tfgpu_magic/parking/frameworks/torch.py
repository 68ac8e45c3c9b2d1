"""PyTorch's storages: each is emptied and filled again in place, so that every tensor and view on it stays what it is.

A storage leaves only if it is the one owner of a block of PyTorch's own allocator: what another library has lent, what
two storages share, and what is not in the allocator's list stays. It comes back to the stream that it was allocated
for, at another address; so a captured graph, or a library that keeps addresses, speaks against it.
Source: PyTorch 2.6 to 2.13, `torch/storage.py`, `torch/cuda/memory.py`, `CUDACachingAllocator.cpp`,
`aten/src/ATen/native/cuda/Resize.cpp`.
"""

from __future__ import annotations

import bisect
import contextlib
import sys
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from typing import Any, NamedTuple

from tfgpu_magic.frameworks import cuda
from tfgpu_magic.frameworks.objects import filter_kinds, is_a, subclasses
from tfgpu_magic.frameworks.torch.framework import FRAMEWORK
from tfgpu_magic.ground.message import Message, msg
from tfgpu_magic.parking.frameworks import UNREADABLE, Movable, Staying, Survey

DEVICE = "cuda"
"""The type of the devices whose storages move."""

_KEEP_ADDRESSES = {
    "cupy": "CuPy",
    "numba.cuda.cudadrv.driver": "Numba's CUDA",
    "pycuda.driver": "PyCUDA",
    "rmm": "RMM",
    "tensorrt": "TensorRT",
    "onnxruntime": "ONNX Runtime",
    "warp": "Warp",
    "dgl": "DGL",
    "cvcuda": "CV-CUDA",
}
"""Libraries that take PyTorch's memory by its address, and do not tell which."""

_LENT = msg("another library has lent this memory, or PyTorch's allocator does not list it")
_SHARED = msg("two storages share this memory")
_ONLY_C = msg("only C++ leads to it, as to the graph of a loss that is kept, or to cuBLAS's workspace")
_FOREIGN = msg("another framework uses this memory by its address")
_UNLISTED = msg("PyTorch's allocator is `{allocator}`, which lists no blocks")
_POOL = msg("some of it is set apart for a CUDA graph or a pool of your own, which keeps addresses; delete that first")
_DISTRIBUTED = msg("`torch.distributed` is initialised; `torch.distributed.destroy_process_group()` ends that")
_SENT = msg("it was sent to another process, or comes from one")
_ADDRESSES = msg("{libraries} may use it by its address")


class Block(NamedTuple):
    """A block of the allocator that is in use: where it is, and the stream that it was allocated for."""

    address: int
    size: int
    stream: int


class Storage:
    """A storage as a `Movable`."""

    def __init__(self, name: str, storage: Any, stream: int) -> None:
        self.name, self.size = name, storage.nbytes()
        self.gpu = _uuid(storage.device.index)
        self._storage, self._device, self._stream = storage, storage.device, stream
        self._host: Any = None

    def copied(self) -> Any:
        """Return a copy of it in host memory."""
        host = sys.modules["torch"].UntypedStorage(self.size)
        with _stream(self._device):
            host.copy_(self._storage)  # returns when the copy is whole: host memory is not pinned
        return host

    def take_out(self) -> None:
        """Copy it to host memory, and empty it."""
        self._host = self.copied()
        with _stream(self._device):  # and its device: an empty storage has that of the current one
            self._storage.resize_(0)

    def put_back(self) -> None:
        """Fill it again if it is empty or half full."""
        if self._host is None:
            return
        if self._storage.nbytes() != self.size:
            with _stream(self._device, self._stream):  # the allocator gives a block to the stream that it is for
                self._storage.resize_(self.size)
        with _stream(self._device):
            self._storage.copy_(self._host)
        _synchronize(self._device)

    def make_unreadable(self) -> None:
        """Make PyTorch raise an error at any use of its address."""
        sys.modules["torch"]._C._set_storage_data_ptr_access_error_msg(self._storage._cdata, str(UNREADABLE))

    def host(self, storage: Any) -> Any:
        """Return what is in host memory of a storage; None of another one than this."""
        return self._host if storage._cdata == self._storage._cdata else None


def addresses(objects: Sequence[object]) -> list[int]:
    """Return where its storages begin."""
    return [storage.data_ptr() for _, storage in _storages(objects)]


def survey(objects: Sequence[object], foreign: Sequence[int]) -> Survey:
    """Find the storages that can leave."""
    torch: Any = sys.modules["torch"]
    found = {storage._cdata: (name, storage) for name, storage in _storages(objects)}
    blocks = _blocks()
    why = _stays_whole(torch, objects, found)
    if blocks is None or why:
        why = why or _UNLISTED(allocator=str(FRAMEWORK.allocator()))
        return Survey(stays=[Staying("PyTorch's tensors", sum(one.nbytes() for _, one in found.values()), why)])
    for device in {storage.device for _, storage in found.values()}:
        _synchronize(device)
    starts = [block.address for block in blocks]

    def block_of(address: int) -> Block | None:
        place = bisect.bisect_right(starts, address) - 1
        there = blocks[place] if place >= 0 else None
        return there if there and address < there.address + there.size else None

    on_block = Counter(block_of(storage.data_ptr()) for _, storage in found.values())
    used = {block_of(address) for address in foreign}
    leaves, stays = list[Movable](), list[Staying]()
    if rest := sum(block.size for block in blocks if block not in on_block):
        stays.append(Staying("PyTorch's memory without a tensor", rest, _ONLY_C))
    for name, storage in found.values():
        block = block_of(storage.data_ptr())
        if block is None or block.address != storage.data_ptr() or not storage.resizable():
            stays.append(Staying(name, storage.nbytes(), _LENT))
        elif on_block[block] > 1 or block in used:
            stays.append(Staying(name, storage.nbytes(), _SHARED if on_block[block] > 1 else _FOREIGN))
        else:
            leaves.append(Storage(name, storage, block.stream))
    return Survey(leaves, stays)


def array(thing: Any, moved: Sequence[Movable]) -> Any:
    """Return a tensor's value, which shares the memory of what is in host memory."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not is_a(thing, torch.Tensor):
        return None
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        if parts := _parts(thing):
            return {name: array(part, moved) for name, part in parts.items()}
        storage = thing.untyped_storage()
        hosts = (one.host(storage) for one in moved if isinstance(one, Storage))
        host = next((one for one in hosts if one is not None), None)
        if host is None:
            return _to_numpy(thing.detach().cpu())
        made = torch.empty(0, dtype=thing.dtype, device="cpu")  # the user's default may be another
        made.set_(host, thing.storage_offset(), thing.size(), thing.stride())
        made = made.conj() if thing.is_conj() else made
        return _to_numpy(torch._neg_view(made) if thing.is_neg() else made)


def _stays_whole(torch: Any, objects: Sequence[object], found: Container[int]) -> Message | None:
    """Return why none of PyTorch's memory, storages that are found by their numbers, can leave; None if some can."""
    graph: Any = torch.cuda.CUDAGraph
    if _private_pools() or any(is_a(one, graph) for one in objects):
        return _POOL
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return _DISTRIBUTED
    shared = getattr(sys.modules.get("torch.multiprocessing.reductions"), "shared_cache", {})
    alive = (one for one in [*shared.values()] if not one.expired())
    if any(one.cdata in found for one in alive):  # others are on the CPU: a DataLoader's batches
        return _SENT
    partners = [name for module, name in _KEEP_ADDRESSES.items() if module in sys.modules]
    return _ADDRESSES(libraries=" and ".join(partners)) if partners else None


def _storages(objects: Sequence[object]) -> list[tuple[str, Any]]:
    """Return the storages on GPUs that tensors lead to, with a name; each as often as it is found."""
    torch: Any = sys.modules["torch"]
    tensors = filter_kinds(objects, frozenset(map(id, subclasses(torch.Tensor))))
    storages = filter_kinds(objects, frozenset(map(id, subclasses(torch.UntypedStorage))))
    found: list[tuple[str, Any]] = []
    with torch._C.DisableTorchFunctionSubclass():  # a subclass may have code of its user's for every attribute
        for storage in storages:
            with contextlib.suppress(Exception):  # one that cannot be asked stays
                found += _of_storage("storage", storage)
        for thing in tensors:  # the later name holds
            with contextlib.suppress(Exception):
                found += _of_tensor(thing)
    return found


def _of_tensor(tensor: Any) -> Iterator[tuple[str, Any]]:
    if tensor.device.type != DEVICE:
        return
    if tensor.is_leaf and tensor.grad is not None:  # of others PyTorch warns, and has none
        yield from _of_tensor(tensor.grad)
    parts = _parts(tensor)
    if not parts:
        shape = "×".join(map(str, tensor.shape)) or "one element"
        yield from _of_storage(f"{_type(tensor)} tensor of {shape}", tensor.untyped_storage())
    for part in parts.values():
        yield from _of_tensor(part)


def _parts(tensor: Any) -> dict[str, Any]:
    """Return the tensors of which a sparse one is made, by their names; none of another one."""
    torch: Any = sys.modules["torch"]
    if tensor.layout is torch.sparse_coo:
        return {"indices": tensor._indices(), "values": tensor._values()}
    names = {
        torch.sparse_csr: ("crow_indices", "col_indices", "values"),
        torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
        torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
        torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
    }
    return {name: getattr(tensor, name)() for name in names.get(tensor.layout, ())}


def _type(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _to_numpy(tensor: Any) -> Any:
    """Return a tensor of the CPU as an array; of a type that NumPy does not know its bits, by the type's name."""
    torch: Any = sys.modules["torch"]
    tensor, name = tensor.resolve_conj().resolve_neg(), _type(tensor)
    try:
        return tensor.numpy()
    except TypeError:
        bits = tensor.view(getattr(torch, f"uint{8 * tensor.element_size()}")).numpy()
        known = getattr(sys.modules.get("ml_dtypes"), name, None)  # which TensorFlow needs, too
        return {name: bits} if known is None else bits.view(known)


def _of_storage(name: str, storage: Any) -> Iterator[tuple[str, Any]]:
    if storage.device.type == DEVICE and storage.nbytes() and storage.data_ptr():  # a wrapper of tensors has no memory
        yield name, storage


def _snapshot() -> list[dict[str, Any]]:
    torch: Any = sys.modules["torch"]
    return list(torch.cuda.memory_snapshot())


def _private_pools() -> bool:
    """Return whether memory was set apart, which captured graphs and pools of the user's have."""
    return any(tuple(one.get("segment_pool_id", (0, 0))) != (0, 0) for one in _snapshot())


def _blocks() -> list[Block] | None:
    """Return the blocks of PyTorch's allocator that are in use, by address; None if it has no list of them."""
    if FRAMEWORK.allocator() != "native":
        return None
    return sorted(
        Block(block["address"], block["size"], segment["stream"])
        for segment in _snapshot()
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    )


def _uuid(number: int | None) -> str:
    shown = cuda.visible_gpus()
    return shown[number] if number is not None and number < len(shown) else ""


_streams: dict[str, Any] = {}
"""Our own stream on each device."""


def _stream(device: Any, pointer: int | None = None) -> Any:
    """Return a block on a stream of a device: the one of a pointer, 0 for the default one, or our own."""
    module: Any = sys.modules["torch"].cuda
    if pointer is None:
        if str(device) not in _streams:
            _streams[str(device)] = module.Stream(device)
        stream = _streams[str(device)]
    else:
        stream = module.ExternalStream(pointer, device) if pointer else module.default_stream(device)
    return module.stream(stream)


def _synchronize(device: Any) -> None:
    sys.modules["torch"].cuda.synchronize(device)
