"""What only the process itself can say of its parking: what runs in it, and what it has done that no driver forgives.

Where it cannot be known, it is taken for so: nobody has seen what becomes of it.
Sources: dladdr(3), proc_pid_maps(5); NVIDIA/cuda-checkpoint#15 (profilers), #58 (NVML); NVIDIA's MPS documentation.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfgpu_magic.frameworks import NAMES, cuda
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.checks import Inside

_MAPS = Path("/proc/self/maps")
_NVML, _MPS = "libnvidia-ml.so.1", "/tmp/nvidia-mps"  # noqa: S108  # where MPS is found without a word
_kept: list[ctypes.CDLL] = []  # NVML's library, once it was loaded here before anything else could unload it


def keep_nvml() -> None:
    """Load NVML, unless something may have loaded and unloaded it already, so that nothing unloads it any more.

    A driver of 610 or newer ends a process in which NVML was unloaded without its own end.
    """
    maps = _maps()
    if _kept or maps is None or not sys.modules.keys().isdisjoint(NAMES):
        return
    if not any("libnvidia-ml" in file or "libcuda.so" in file for file in maps):
        with contextlib.suppress(OSError):  # there is no driver
            _kept.append(ctypes.CDLL(_NVML))


def of_process(*, busy: bool = False, threads: tuple[str, ...] = (), allow_open_module: bool = False) -> Inside:
    """Return what this process says of itself; while a cell runs it is busy, and threads may call CUDA at any time."""
    maps, contexts = _maps(), len(cuda.contexts())
    against = {
        why.BUSY(): busy,
        why.THREADS(threads): bool(threads),
        why.NCCL(): maps is None or _nccl(maps, contexts),
        # Whether PyTorch has sent GPU memory to another process, or got some of one.
        why.SHARED_MEMORY(): bool(getattr(sys.modules.get("torch.multiprocessing.reductions"), "shared_cache", None)),
        why.PROFILED(): maps is None or _profiled(maps),
        why.PREFETCHES(): _prefetches(),
        why.MPS(): _mps(),
        why.SEVERAL_GPUS(): contexts > 1,
    }
    return Inside(
        against=tuple(reason for reason, found in against.items() if found),
        nvml=bool(_kept),
        libraries=() if maps is None else tuple(sorted(_libraries(maps))),
        allow_open_module=allow_open_module,
    )


def _maps() -> frozenset[str] | None:
    """Return the files that are mapped here; None in a process that may not be looked into."""
    with contextlib.suppress(OSError):
        lines = _MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        return frozenset(line.split(maxsplit=5)[5] for line in lines if "/" in line)
    return None


def _nccl(maps: frozenset[str], contexts: int) -> bool:
    """Tell whether NCCL may have started: TensorFlow loads it only then, and PyTorch and JAX always have it loaded."""
    if not any("libnccl" in file for file in maps):
        return False
    torch: Any = sys.modules.get("torch.distributed")
    jax: Any = sys.modules.get("jax._src.distributed")
    if torch is None and jax is None:
        return True
    together = torch is not None and torch.is_available() and torch.is_initialized()
    return bool(together or getattr(getattr(jax, "global_state", None), "client", None)) or contexts > 1


def _profiled(maps: frozenset[str]) -> bool:
    """Tell whether a profiler may have run: TensorFlow loads CUPTI only then, and PyTorch and JAX always have it.

    Of these two it is known while one runs; of PyTorch's also afterwards, as long as its result is kept.
    """
    torch, jax = sys.modules.get("torch.autograd.profiler"), sys.modules.get("jax._src.profiler")
    if any("libcupti" in file for file in maps) and ("tensorflow" in sys.modules or (torch is None and jax is None)):
        return True
    session = getattr(getattr(jax, "_profile_state", None), "profile_session", None)
    return session is not None or (torch is not None and any(_alive("torch.autograd.profiler", "profile")))


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


def _mps() -> bool:
    """Tell whether MPS may stand between this process and the driver: it was named, or its daemon has its pipe."""
    if os.environ.get("CUDA_MPS_PIPE_DIRECTORY"):
        return True
    with contextlib.suppress(OSError):  # another user's daemon serves nobody else, and anybody can make such a folder
        return Path(_MPS, "control").stat().st_uid in (0, os.geteuid())
    return False


def _libraries(maps: frozenset[str]) -> set[str]:
    """Return the files from which this process may have the driver's calls: libcuda, and what was preloaded before it.

    That a library of the global scope has them means nothing by itself: TensorFlow's has stubs that open libcuda.
    """
    found = {file for file in maps if Path(file).name.startswith("libcuda.so")}
    here, about = ctypes.CDLL(None), (ctypes.c_char_p * 4)()  # of which dladdr writes the file first
    with contextlib.suppress(AttributeError):  # no such call is in the global scope
        here.dladdr(ctypes.cast(here.cuInit, ctypes.c_void_p), ctypes.byref(about))
        first = os.fsdecode(about[0] or b"")
        found.update({first} if Path(first).name in _preloaded() else ())
    return found


def _preloaded() -> set[str]:
    """Return the names of the libraries that were loaded before all others. Source: ld.so(8)."""
    named = ""
    with contextlib.suppress(OSError):  # as it was at the start: what is set now holds for children
        start = Path("/proc/self/environ").read_bytes().split(b"\0")
        named = " ".join(os.fsdecode(one[11:]) for one in start if one.startswith(b"LD_PRELOAD="))
    with contextlib.suppress(OSError):
        named += " " + Path("/etc/ld.so.preload").read_text(encoding="utf-8", errors="surrogateescape")
    return {Path(file).name for file in re.split(r"[\s:]+", named) if file}
