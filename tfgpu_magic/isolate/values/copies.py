"""Copies of pickled values that are sent later: each as it was when it was passed, and equal memory only once.

A hundred calls that wait may all read one large array, which is then copied once, and not a hundred times. Copies are
ordinary memory: a memfd would take a descriptor for as long as a call waits, and few processes may have 1024 of them.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import Any

from tfgpu_magic.isolate.values.pickling import Pickled
from tfgpu_magic.machine import host_memory

_COPIES: weakref.WeakValueDictionary[tuple[int, int], memoryview] = weakref.WeakValueDictionary()
_LOCK = threading.Lock()
_LIBC: Any = ctypes.CDLL(None)
_LIBC.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class _PyBuffer(ctypes.Structure):
    """The C structure of a buffer, since ctypes itself returns addresses of writable memory only.

    Source: `Py_buffer` of Python's C interface.
    """

    _fields_ = (
        *((("address", ctypes.c_void_p), ("object", ctypes.py_object))),
        *((name, ctypes.c_ssize_t) for name in ("length", "itemsize")),
        *((name, ctypes.c_int) for name in ("readonly", "dimensions")),
        *((name, ctypes.c_void_p) for name in ("format", "shape", "strides", "suboffsets", "internal")),
    )


def copy_for_later(pickled: Pickled) -> Pickled:
    """Return the value with memory of its own, so that its arrays may change before it is sent.

    Raises:
        OSError: there is no room for the copies.
    """
    buffers = {(_address(buffer), buffer.nbytes): buffer for buffer in pickled.buffers}
    with _LOCK:
        copies = {place: copy for place in buffers if (copy := _earlier(place)) is not None}
        new = {place: buffer for place, buffer in buffers.items() if place not in copies}
        host_memory.check_room(sum(size for _, size in new))
        for place, buffer in new.items():
            copies[place] = _COPIES[place] = memoryview(bytes(buffer))
    return Pickled(pickled.stream, tuple(copies[_address(buffer), buffer.nbytes] for buffer in pickled.buffers))


def _earlier(place: tuple[int, int]) -> memoryview | None:
    """Return the copy of some memory, its address and size, if there is one and nothing has changed."""
    copy, (address, size) = _COPIES.get(place), place
    return copy if copy is not None and not _LIBC.memcmp(address, _address(copy), size) else None


def _address(buffer: memoryview) -> int:
    """Return the address of its memory."""
    view = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(buffer), ctypes.byref(view), 0)
    try:
        return view.address or 0
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
