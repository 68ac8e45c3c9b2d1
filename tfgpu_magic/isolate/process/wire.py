"""Messages between a kernel and a worker process: one packet each, and large parts in shared memory beside it.

What a kernel and its fork server send each other is plain bytes: `ORDER`, and `FIGURE` over a pipe a call.

A large part is written once, into a memfd, which the other side maps: it is not copied again, and needs no room in
/dev/shm. What the parts mean is left to `order` and `worker`.
Source: memfd_create(2); mmap(2); unix(7) on SCM_RIGHTS and SOCK_SEQPACKET.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import pickle
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfgpu_magic.machine import host_memory

INLINE = 16 * 2**10
"""Bytes up to which a part travels in the packet itself."""

ALONE = 2**20
"""Bytes from which a part has a memfd of its own, which is freed with that part alone; smaller parts share one memfd,
and so do all if there are very many large ones."""

_MEMORIES = 200  # memfds in a message, at most: Linux passes 253 descriptors
_PACKET = 48 * 2**10  # bytes, at most, of a packet; two fit into Linux' smallest usual buffer, so none waits
_IN_MEMORY = b"+"  # a packet whose content is in the memory of its last descriptor
_ALIGNED = 64  # bytes: the alignment of a part in a memory that several share, for vector instructions
_CHUNK = 64 * 2**20  # bytes in one write, so that signals are handled between two

_MFD_CLOEXEC, _MAP_FIXED = 0x1, 0x10

_LIBC: Any = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


FIGURE = struct.Struct("=q")
"""The format of a pid and of an exit status: a status as in `subprocess`, negative for a signal."""

ORDER = struct.Struct("=qq")
"""The format of an order: a pid and a signal for its process group. With pid 0 it starts a call and carries these
descriptors: the pipe that its pid and its exit status are written to, its connection, its output, its error output,
the pipe that `faulthandler` writes to, and that of the kernel's resource tracker, if one runs."""


@dataclass(frozen=True, slots=True)
class WireMessage:
    """A received message.

    Attributes:
        kind: its kind; see `order`.
        parts: its parts, each writable memory that belongs to the receiver alone.
    """

    kind: str
    parts: tuple[memoryview, ...] = ()


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(end: socket.socket, kind: str, parts: Sequence[bytes | memoryview] = ()) -> None:
    """Send a message, whole or not at all; each part is contiguous memory, in bytes.

    Raises:
        OSError: the other end is closed (`BrokenPipeError`), or there is no memory for the large parts.
    """
    host_memory.check_room(sum(len(part) for part in parts if len(part) > INLINE))
    memories: list[_MappedMemory] = []
    shared: int | None = None
    alone = sum(len(part) >= ALONE for part in parts) < _MEMORIES
    places: list[bytes | tuple[int, int, int]] = []
    with contextlib.ExitStack() as closing:

        def store(part: bytes | memoryview, number: int | None = None) -> tuple[int, int, int]:
            if number is None:
                number = len(memories)
                memories.append(_MappedMemory())
                closing.callback(os.close, memories[-1].descriptor)  # the receiver has its own
            return number, memories[number].add(part), len(part)

        for part in parts:
            if len(part) <= INLINE:
                places.append(bytes(part))
            elif alone and len(part) >= ALONE:
                places.append(store(part))
            else:
                places.append(store(part, shared))
                shared = places[-1][0]
        head = pickle.dumps((kind, places))
        if len(head) > _PACKET:  # very many parts
            store(head)
            head = _IN_MEMORY
        socket.send_fds(end, [head], [memory.descriptor for memory in memories])


def receive(end: socket.socket) -> WireMessage | None:
    """Receive a message; None when the other end is closed.

    Raises:
        OSError: the connection is broken, or there are no descriptors or no room to map a large part.
    """
    head, descriptors, flags, _ = socket.recv_fds(end, _PACKET, _MEMORIES + 2, socket.MSG_CMSG_CLOEXEC)
    try:
        if flags & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, "What another process sent cannot be taken: too many open files")
        memories = [_mapped(descriptor) for descriptor in descriptors]
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    if not head:
        return None
    kind, places = pickle.loads(memories.pop() if head == _IN_MEMORY else head)  # noqa: S301  # by our own `send`
    return WireMessage(kind, tuple(_part(place, memories) for place in places))


def memory(content: bytes = b"") -> int:
    """Make a memfd with this content, to be read from its start; return its descriptor.

    Raises:
        OSError: there is no room, or there are no descriptors left.
    """
    # Not os.memfd_create, which a Python that was built with an old C library lacks.
    descriptor: int = _LIBC.memfd_create(b"tfgpu_magic", _MFD_CLOEXEC)
    if descriptor < 0:
        raise _no_room(ctypes.get_errno(), "memory")
    os.pwrite(descriptor, content, 0)
    return descriptor


class _MappedMemory:
    """Memory for another process to map."""

    def __init__(self) -> None:
        self.descriptor = memory()
        self._size = 0

    def add(self, part: bytes | memoryview) -> int:
        """Append a part, and return the offset at which it begins."""
        start = self._size = -(-self._size // _ALIGNED) * _ALIGNED
        rest = memoryview(part)
        try:
            # Written and not mapped: a mapping would have to fill its pages with zeros first.
            while rest:
                written = os.pwrite(self.descriptor, rest[:_CHUNK], self._size)
                self._size, rest = self._size + written, rest[written:]
        except OSError as error:
            raise _no_room(error.errno, f"{len(part)} bytes of memory") from None
        return start


def _mapped(descriptor: int) -> memoryview:
    """Map all of a memfd, as ordinary memory of this process.

    The mapping is private, so that a fork of this process gets a copy, as of all other memory. It is put over an
    anonymous mapping, because Python's own mapping of a file keeps a descriptor for as long as it lives.
    """
    size = os.fstat(descriptor).st_size
    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    access, kind = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _MAP_FIXED
    if _LIBC.mmap(address, size, access, kind, descriptor, 0) != address:
        raise _no_room(ctypes.get_errno(), f"{size} bytes of memory")
    return memoryview(area)


def _part(place: bytes | tuple[int, int, int], memories: Sequence[memoryview]) -> memoryview:
    if isinstance(place, bytes):
        return memoryview(bytearray(place))
    number, start, size = place
    return memories[number][start : start + size]


def _no_room(number: int | None, what: str) -> OSError:
    number = number or errno.ENOMEM
    return OSError(number, f"There is no room for {what} to share with another process: {os.strerror(number)}")
