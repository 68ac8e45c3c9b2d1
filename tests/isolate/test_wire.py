"""Messages arrive whole or not at all, cost few descriptors, and what arrives is ordinary memory."""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.isolate.rig import descriptors
from tests.waiting import until
from tfgpu_magic.isolate.process import wire

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Pair]:
    before = descriptors().items()
    one, other = wire.pair()
    with one, other:
        yield one, other
    until(lambda: descriptors().items() <= before)


def across(ends: Pair, parts: list[bytes]) -> list[bytes]:
    wire.send(ends[0], "work", parts)
    message = wire.receive(ends[1])
    assert message is not None
    return [bytes(part) for part in message.parts]


SIZES = [0, 1, wire.INLINE, wire.INLINE + 1, wire.ALONE - 1, wire.ALONE, 3 * wire.ALONE + 7]


@pytest.mark.parametrize(
    "sizes",
    [[], SIZES, SIZES[::-1], [wire.INLINE + 1] * 1000, [wire.ALONE] * 100, [wire.INLINE] * 100, [0, 5] * 5000],
    ids=["none", "all", "reversed", "a thousand", "a hundred alone", "a long packet", "very many"],
)
def test_parts_arrive_as_they_were(ends: Pair, sizes: list[int]) -> None:
    parts = [bytes([number % 251]) * size for number, size in enumerate(sizes)]

    assert across(ends, parts) == parts


def test_of_many_large_parts_one_that_is_kept_keeps_few_others(ends: Pair) -> None:
    wire.send(ends[0], "work", [bytes(2 * wire.ALONE)] * 80)
    message = wire.receive(ends[1])
    assert message is not None
    kept = message.parts[-1]
    del message

    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:tfgpu_magic" in line]
    sizes = [int(end, 16) - int(start, 16) for start, end in (entry[0].split("-") for entry in maps)]
    assert len(kept) <= sum(sizes) <= 12 * wire.ALONE


def test_what_arrives_is_writable_and_aligned(ends: Pair) -> None:
    wire.send(ends[0], "", [bytes(size) for size in SIZES])
    message = wire.receive(ends[1])

    assert message is not None
    for part in message.parts:
        assert not part.readonly
        if len(part) > wire.INLINE:
            assert np.frombuffer(part, np.uint8).ctypes.data % 64 == 0


def test_a_forked_process_has_a_copy_as_of_all_other_memory(ends: Pair) -> None:
    wire.send(ends[0], "", [bytes(2 * wire.ALONE)])
    message = wire.receive(ends[1])
    assert message is not None
    (part,) = message.parts
    child = os.fork()
    if child == 0:
        part[:] = b"x" * len(part)
        os._exit(part[0] != ord("x"))
    _, status = os.waitpid(child, 0)

    assert (status, bytes(part)) == (0, bytes(len(part)))


def test_memory_goes_with_its_array(ends: Pair) -> None:
    for _ in range(20):
        wire.send(ends[0], "", [bytes(50 * 2**20)])
        message = wire.receive(ends[1])
        assert message is not None
        held = message.parts[0][5:10]
        del message
        mapped = Path("/proc/self/maps").read_text().count("memfd:tfgpu_magic")
        del held

    assert mapped == 1


def test_a_closed_end_is_told(ends: Pair) -> None:
    ends[0].close()

    assert wire.receive(ends[1]) is None
    with pytest.raises(BrokenPipeError):
        wire.send(ends[1], "", [bytes(wire.ALONE)])


def test_without_descriptors_a_message_is_refused_clearly(ends: Pair) -> None:
    wire.send(ends[0], "", [bytes(wire.ALONE)] * 5)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(free := os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))
    try:
        with pytest.raises(OSError, match="another process sent cannot be taken: too many open files") as caught:
            wire.receive(ends[1])
        with pytest.raises(OSError, match="no room for memory to share with another process: Too many open files"):
            wire.send(ends[0], "", [bytes(wire.ALONE)] * 5)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert caught.value.errno == errno.EMFILE
