"""What only the process itself knows that speaks against moving its GPU state away now."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tfgpu_magic.frameworks import cuda

_MAPS = Path("/proc/self/maps")

BUSY = "A cell runs there: it is parked between cells only."
NCCL = "NCCL has started in it, so other processes may wait for what it has on the GPUs."
SHARED_MEMORY = "It shares GPU memory with another process."
PREFETCHES = (
    "A tf.data pipeline there prefetches to the GPU, and may use it at any time. Delete its iterator first (`del` and "
    "its name)."
)


def reasons(names: Sequence[str] = (), *, busy: bool = False) -> tuple[str, ...]:
    """Return every reason why this process's GPU state must stay where it is; what cannot be known is one.

    Args:
        names: the threads, tasks and callbacks that the gate cannot block.
        busy: whether a cell runs.
    """
    threads = (
        f"These threads, tasks or callbacks may use the GPU while it is parked: {', '.join(names)}. Stop them first."
    )
    against = {
        BUSY: busy,
        threads: bool(names),
        NCCL: _nccl(_maps(), len(cuda.contexts())),
        SHARED_MEMORY: _shares_memory(),
        PREFETCHES: _prefetches(),
    }
    return tuple(reason for reason, found in against.items() if found)


def _maps() -> frozenset[str] | None:
    """Return the files that are mapped here; None in a process that may not be looked into."""
    with contextlib.suppress(OSError):
        lines = _MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        return frozenset(line.split(maxsplit=5)[5] for line in lines if "/" in line)
    return None


def _nccl(maps: frozenset[str] | None, contexts: int) -> bool:
    """Tell whether NCCL may have started: TensorFlow loads it only then, and PyTorch and JAX always have it loaded."""
    if maps is None:
        return True
    if not any("libnccl" in file for file in maps):
        return False
    torch: Any = sys.modules.get("torch.distributed")
    jax: Any = sys.modules.get("jax._src.distributed")
    if torch is None and jax is None:
        return True
    together = torch is not None and torch.is_available() and torch.is_initialized()
    return bool(together or getattr(getattr(jax, "global_state", None), "client", None)) or contexts > 1


def _shares_memory() -> bool:
    """Tell whether PyTorch has sent GPU memory to another process, or got some of one."""
    return bool(getattr(sys.modules.get("torch.multiprocessing.reductions"), "shared_cache", None))


def _prefetches() -> bool:
    """Tell whether a pipeline of ``tf.data`` that copies ahead to a GPU is alive: its threads call CUDA at any time."""
    if not _pipelines():
        return False
    gc.collect()  # one that nobody has any more may be there still
    return _pipelines()


def _pipelines() -> bool:
    data = "tensorflow.python.data.ops."
    if any(_alive(f"{data}multi_device_iterator_ops", "OwnedMultiDeviceIterator")):
        return True
    return any(_to_gpu(one._dataset) for one in _alive(f"{data}iterator_ops", "OwnedIterator"))


def _to_gpu(dataset: Any) -> bool:
    """Tell whether a dataset, or one that it is made of, is copied to a GPU."""
    if getattr(dataset, "_is_gpu_target", False):
        return True
    return dataset is not None and any(map(_to_gpu, dataset._inputs()))


def _alive(module: str, name: str) -> Iterator[Any]:
    """Give the objects of a class that are alive, where its module is imported."""
    kind = getattr(sys.modules.get(module), name, None)
    if kind is not None:
        yield from (one for one in gc.get_objects() if type(one) is kind)
