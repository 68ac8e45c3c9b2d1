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

_COPIES: weakref.WeakValueDictionary[tuple[int, int], memoryview] = weakref.WeakValueDictionary()
_LOCK = threading.Lock()
_LIBC: Any = ctypes.CDLL(None)
_LIBC.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class _Buffer(ctypes.Structure):
    """The C structure of a buffer, since ctypes itself returns addresses of writable memory only.

    Source: `Py_buffer` of Python's C interface.
    """

    _fields_ = (
        *((("address", ctypes.c_void_p), ("object", ctypes.py_object))),
        *((name, ctypes.c_ssize_t) for name in ("length", "itemsize")),
        *((name, ctypes.c_int) for name in ("readonly", "dimensions")),
        *((name, ctypes.c_void_p) for name in ("format", "shape", "strides", "suboffsets", "internal")),
    )


def copied(pickled: Pickled) -> Pickled:
    """Return the value with memory of its own, so that its arrays may change before it is sent."""
    return Pickled(pickled.stream, tuple(map(_copy, pickled.buffers)))


def _copy(buffer: memoryview) -> memoryview:
    """Return a copy: an earlier one of the same memory, where that still exists and nothing has changed."""
    place = _address(buffer), buffer.nbytes
    with _LOCK:
        copy = _COPIES.get(place)
        if copy is None or _LIBC.memcmp(place[0], _address(copy), buffer.nbytes):
            copy = _COPIES[place] = memoryview(bytes(buffer))
    return copy


def _address(buffer: memoryview) -> int:
    """Return the address of its memory."""
    view = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(buffer), ctypes.byref(view), 0)
    try:
        return view.address or 0
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
