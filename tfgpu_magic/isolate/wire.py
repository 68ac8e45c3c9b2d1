"""Messages between a kernel and the process of its call: small parts in the packet, large ones in memory of their own.

A large part is written once, into a memfd, which the other side maps: it is not copied again, and needs no room in
/dev/shm. What the parts mean is not known here.
Source: memfd_create(2); unix(7) on SCM_RIGHTS and SOCK_SEQPACKET.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

INLINE = 16 * 2**10
"""Bytes up to which a part travels in the packet itself."""

_PACKET = 128 * 2**10  # bytes: the most a packet may have; Linux' default buffer takes 208 KiB
_ELSEWHERE = b"+"  # a packet whose words are in its first descriptor, or were in the packet before it
_AT_ONCE = 64  # descriptors in one packet; Linux allows 253, and few processes may have more than 1024 open
_CHUNK = 64 * 2**20  # bytes in one write, so that a signal is heard meanwhile


@dataclass(frozen=True, slots=True)
class Message:
    """What was received.

    Attributes:
        kind: what it is about.
        parts: its parts, each writable memory that belongs to the receiver alone.
    """

    kind: str
    parts: tuple[memoryview, ...] = ()


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(end: socket.socket, kind: str, parts: Sequence[bytes | memoryview] = ()) -> None:
    """Send a message; each part is contiguous memory.

    Raises:
        OSError: the other end is closed (`BrokenPipeError`), or there is no memory for a large part.
    """
    inline = [bytes(part) if len(part) <= INLINE else None for part in parts]
    sizes = [len(part) for part in parts]
    head = pickle.dumps((kind, sizes, inline))
    large = [part for part, small in zip(parts, inline, strict=True) if small is None]
    if len(head) > _PACKET:  # very many parts
        large, head = [head, *large], _ELSEWHERE
    for start in range(0, len(large) or 1, _AT_ONCE):
        with _stored(large[start : start + _AT_ONCE]) as descriptors:
            socket.send_fds(end, [head if start == 0 else _ELSEWHERE], descriptors)


def receive(end: socket.socket) -> Message | None:
    """Receive a message; None when the other end is closed.

    Raises:
        OSError: the connection is broken, or there is no room to map a large part.
    """
    packet, descriptors = _receive_packet(end)
    try:
        if not packet:
            return None
        head = packet if packet != _ELSEWHERE else _mapped(descriptors, os.fstat(descriptors[0]).st_size)
        kind, sizes, inline = pickle.loads(head)  # noqa: S301  # from our own process, by our own `send`
        parts = []
        for size, small in zip(sizes, inline, strict=True):
            if small is not None:
                parts.append(memoryview(bytearray(small)))
                continue
            if not descriptors:
                more, descriptors = _receive_packet(end)
                if not more:
                    return None
            parts.append(_mapped(descriptors, size))
        return Message(kind, tuple(parts))
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _receive_packet(end: socket.socket) -> tuple[bytes, list[int]]:
    packet, descriptors, _, _ = socket.recv_fds(end, 2 * _PACKET, _AT_ONCE, socket.MSG_CMSG_CLOEXEC)
    return packet, descriptors


@contextlib.contextmanager
def _stored(parts: Sequence[bytes | memoryview]) -> Iterator[list[int]]:
    """Descriptors of memory with these parts; the receiver keeps them when they are closed here."""
    descriptors: list[int] = []
    try:
        for part in parts:
            descriptors.append(os.memfd_create("tfgpu_magic"))
            # Written and not mapped: a write fills pages that a mapping would first have to fill with zeros.
            rest = memoryview(part).cast("B")
            while rest:
                rest = rest[os.write(descriptors[-1], rest[:_CHUNK]) :]
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _mapped(descriptors: list[int], size: int) -> memoryview:
    """Map the first descriptor's memory and close it. Nobody else has it any more, so it may be shared and written."""
    descriptor = descriptors.pop(0)
    try:
        return memoryview(mmap.mmap(descriptor, size))
    finally:
        os.close(descriptor)
