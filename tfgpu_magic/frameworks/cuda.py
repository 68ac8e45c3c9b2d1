"""What libcuda reports of this process: THE ONLY module that calls it. It never loads it, so nothing starts.

Only a `child_process` loads it, to find in which order CUDA would show the GPUs, or whether it works.
Source of the calls: CUDA Driver API reference, "Device Management", "Primary Context Management", "Context Management"
and "Stream Ordered Memory Allocator".
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
from collections.abc import Iterator, Mapping

from tfgpu_magic.ground.child_process import PACKAGES, ChildProcess, any_hangs

LIBRARY = "libcuda.so.1"
_CODE = "import sys; sys.path += sys.argv[1:]; from tfgpu_magic.frameworks.cuda import print_visible; print_visible()"

NOT_INITIALISED = 3
"""What every call answers before `cuInit`, and in a child that was forked after it: CUDA_ERROR_NOT_INITIALIZED."""
NO_DEVICE = 100
"""What `cuInit` answers where there is no GPU, or none is visible: CUDA_ERROR_NO_DEVICE."""

CUDA_TIMEOUT = 15.0
"""Seconds that CUDA may take to start in the throwaway process; without persistence mode that is several."""

_library: ctypes.CDLL | None = None
"""The driver library, once it was found loaded."""

_probes: dict[tuple[tuple[str, str], ...], ChildProcess] = {}
"""The processes that have not answered yet, by their environment."""


def loaded_library() -> ctypes.CDLL | None:
    """Return the driver library, if something in this process has loaded it already."""
    global _library  # once loaded, it stays; to open it anew takes longer than most calls
    if _library is None:
        with contextlib.suppress(OSError):
            _library = ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    return _library


def is_initialised() -> bool:
    """Return whether `cuInit` was called in this process, so that `CUDA_VISIBLE_DEVICES` has no effect any more."""
    library = loaded_library()
    return library is not None and library.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != NOT_INITIALISED


def visible_gpus() -> tuple[str, ...]:
    """Return the UUIDs of the GPUs that CUDA shows this process, in its order; none while it is not initialised."""
    return tuple(_uuid(*one) for one in _devices())


def uuids_by_pci() -> dict[str, str]:
    """Return the UUIDs of the same GPUs by PCI bus id, in lower case, as TensorFlow describes them."""
    pci = ctypes.create_string_buffer(32)
    found: dict[str, str] = {}
    for library, device in _devices():
        if library.cuDeviceGetPCIBusId(pci, len(pci), device) == 0:
            found[pci.value.decode().lower()] = _uuid(library, device)
    return found


def pool_sizes() -> dict[str, int]:
    """Return the bytes that each GPU's default memory pool holds, by UUID: of the GPUs that have a context here."""
    return {_uuid(*one): _reserved(one[0], _pool(*one)) for one in _devices_in_use()}


def give_back() -> dict[str, int]:
    """Free what each GPU's default memory pool holds and does not use; return the bytes, by UUID.

    It waits for all work of the GPU first, as only then the driver knows what is free. Whatever is in use stays where
    it is, so other threads may go on; only a CUDA graph that one of them records meanwhile is lost. GPUs without a
    context in this process are left alone, and so are those that fail.
    """
    return {_uuid(*one): _trim(*one) for one in _devices_in_use()}


def gpus_in_use() -> tuple[str, ...]:
    """Return the UUIDs of the GPUs on which something in this process holds a CUDA context."""
    return tuple(_uuid(*one) for one in _devices_in_use())


def visible_gpus_with(environment: Mapping[str, str], *, timeout: float = CUDA_TIMEOUT) -> tuple[str, ...] | None:
    """Return the UUIDs of the GPUs that CUDA would show a process with this environment; None if not known in time.

    A throwaway process calls CUDA, so that this one stays untouched. A slow one goes on, and the next call with the
    same environment gets its answer.
    """
    question = tuple(sorted(environment.items()))
    try:
        if question not in _probes:
            if any_hangs(0.0):
                return None
            _probes[question] = ChildProcess(["-c", _CODE, PACKAGES], env=environment)
        out = _probes[question].answer(timeout)[0]
    except OSError:  # a TimeoutError is one
        if question in _probes and _probes[question].has_ended:
            _probes.pop(question, None)
        return None
    _probes.pop(question, None)
    try:
        return tuple(map(str, json.loads(out)))
    except ValueError:
        return None


def _devices() -> list[tuple[ctypes.CDLL, ctypes.c_int]]:
    """Return the driver library with each device that it shows; none while nothing has loaded it."""
    library, count = loaded_library(), ctypes.c_int()
    if library is None or library.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    devices = [ctypes.c_int() for _ in range(count.value)]
    return [(library, d) for ordinal, d in enumerate(devices) if library.cuDeviceGet(ctypes.byref(d), ordinal) == 0]


def _devices_in_use() -> list[tuple[ctypes.CDLL, ctypes.c_int]]:
    """Return the same of the devices on which this process has a context."""
    flags, active = ctypes.c_uint(), ctypes.c_int()
    return [
        (library, device)
        for library, device in _devices()
        if library.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active)) == 0 and active.value
    ]


def _pool(library: ctypes.CDLL, device: ctypes.c_int) -> ctypes.c_void_p:
    """Return a device's default memory pool; a null pointer where it has none."""
    pool = ctypes.c_void_p()
    library.cuDeviceGetDefaultMemPool(ctypes.byref(pool), device)
    return pool


_RESERVED = 5  # CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT


def _reserved(library: ctypes.CDLL, pool: ctypes.c_void_p) -> int:
    """Return the bytes that a pool holds, in use or not."""
    size = ctypes.c_uint64()
    known = pool and library.cuMemPoolGetAttribute(pool, _RESERVED, ctypes.byref(size)) == 0
    return size.value if known else 0


def _trim(library: ctypes.CDLL, device: ctypes.c_int) -> int:
    """Free what a device's default pool holds and does not use; return the bytes."""
    pool = _pool(library, device)
    before = _reserved(library, pool)
    if not (before and _synchronise(library, device)):
        return 0
    library.cuMemPoolTrimTo(pool, ctypes.c_size_t(0))
    return max(0, before - _reserved(library, pool))  # another thread may have taken some meanwhile


def free_sizes() -> dict[str, int]:
    """Return the bytes that each GPU has free, by UUID: of the GPUs that have a context here."""
    return {_uuid(*one): size for one in _devices_in_use() if (size := _free(*one)) is not None}


def _free(library: ctypes.CDLL, device: ctypes.c_int) -> int | None:
    size, total = ctypes.c_size_t(), ctypes.c_size_t()
    with _context(library, device) as current:
        known = current and library.cuMemGetInfo_v2(ctypes.byref(size), ctypes.byref(total)) == 0
    return size.value if known else None


def _synchronise(library: ctypes.CDLL, device: ctypes.c_int) -> bool:
    """Wait for all work of a device that has a context; return whether that succeeded."""
    with _context(library, device) as current:
        return current and bool(library.cuCtxSynchronize() == 0)


@contextlib.contextmanager
def _context(library: ctypes.CDLL, device: ctypes.c_int) -> Iterator[bool]:
    """Make a device's context this thread's current one in a block; yield whether that worked."""
    context = ctypes.c_void_p()
    if library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) != 0:
        yield False
        return
    try:
        current = library.cuCtxPushCurrent_v2(context) == 0
        yield current
        if current:
            library.cuCtxPopCurrent_v2(ctypes.byref(context))
    finally:
        library.cuDevicePrimaryCtxRelease_v2(device)


_uuids: dict[int, str] = {}
"""The UUIDs of this process's devices, each as it was first told: a report asks for all of them every second."""


def _uuid(library: ctypes.CDLL, device: ctypes.c_int) -> str:
    """Return a UUID as NVML writes it: the call's first version gives the GPU's, the second the MIG instance's."""
    if device.value in _uuids:
        return _uuids[device.value]
    whole, part = ctypes.create_string_buffer(16), ctypes.create_string_buffer(16)
    failed = library.cuDeviceGetUuid(whole, device) or library.cuDeviceGetUuid_v2(part, device)
    digits = part.raw.hex()
    kind = "GPU" if whole.raw == part.raw else "MIG"
    uuid = "-".join((kind, digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return uuid if failed else _uuids.setdefault(device.value, uuid)


def print_visible() -> None:
    """Print what CUDA shows this process, which is the throwaway one."""
    start()
    print(json.dumps(visible_gpus()))


def start() -> int:
    """Start CUDA in this process, a throwaway one, and return its code.

    Raises:
        OSError: the driver's library cannot be opened.
    """
    return int(ctypes.CDLL(LIBRARY).cuInit(0))


def version() -> tuple[int, int] | None:
    """Return the newest version of CUDA that the driver serves; None while its library is not loaded."""
    library, number = loaded_library(), ctypes.c_int()
    if library is None or library.cuDriverGetVersion(ctypes.byref(number)) != 0:
        return None
    return number.value // 1000, number.value % 1000 // 10


def make_context(ordinal: int) -> int:
    """Make a GPU's CUDA context in this process, a throwaway one, which holds it to its end; return CUDA's code."""
    library = loaded_library()
    return (
        NOT_INITIALISED
        if library is None
        else int(library.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), ordinal))
    )


def error_name(code: int) -> str:
    """Return the name of one of CUDA's codes: ``CUDA_ERROR_NO_DEVICE``; its number where the driver knows none."""
    library, text = loaded_library(), ctypes.c_char_p()
    if library is None or library.cuGetErrorName(code, ctypes.byref(text)) != 0 or text.value is None:
        return f"CUDA error {code}"
    return text.value.decode(errors="replace")
