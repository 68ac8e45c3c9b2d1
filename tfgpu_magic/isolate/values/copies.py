"""Copies of pickled values that are sent later: each as it was when it was passed, and equal memory only once.

A hundred calls that wait may all read one large array, which is then copied once, and not a hundred times. Copies are
ordinary memory: a memfd would take a descriptor for as long as a call waits, and few processes may have 1024 of them.
"""

from __future__ import annotations

import threading
import weakref

from tfgpu_magic.isolate.values.pickling import Pickled
from tfgpu_magic.machine import host_memory

_SAMPLE = 1024  # bytes of some memory, spread over it, by which an earlier copy is found

_COPIES: weakref.WeakValueDictionary[tuple[int, bytes], memoryview] = weakref.WeakValueDictionary()
_LOCK = threading.Lock()


def copy_for_later(pickled: Pickled) -> Pickled:
    """Return the value with memory of its own, so that its arrays may change before it is sent.

    Raises:
        OSError: there is no room for the copies.
    """
    with _LOCK:
        copies = [_earlier(buffer) for buffer in pickled.buffers]
        pairs = [*zip(pickled.buffers, copies, strict=True)]
        host_memory.check_room(sum(buffer.nbytes for buffer, copy in pairs if copy is None))
        copied = tuple(memoryview(bytearray(buffer)) if copy is None else copy for buffer, copy in pairs)
        _COPIES.update(zip(map(_key, copied), copied, strict=True))
    return Pickled(pickled.stream, copied)


def _key(buffer: memoryview) -> tuple[int, bytes]:
    return buffer.nbytes, bytes(buffer[:: max(1, buffer.nbytes // _SAMPLE)])


def _earlier(buffer: memoryview) -> memoryview | None:
    """Return an earlier copy of equal memory, if there is one."""
    copy = _COPIES.get(_key(buffer))
    return copy if copy is not None and copy.obj == buffer else None  # a `bytearray` compares as fast as it copies
