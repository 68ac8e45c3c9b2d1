"""A program that holds memory of simulated GPUs, and tells what is in it: the process that is parked in the tests."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import zlib

from tfgpu_magic.parking import client
from tfgpu_magic.parking.checks import Inside

PATTERN = 2**16
"""Bytes that are written at the begin and at the end of what is held."""


def check(code: int) -> None:
    if code:
        raise SystemExit(f"CUDA error {code}")


def main(size: int, gpu: int, managed: int) -> None:
    """Hold memory, and answer what is asked on standard input."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, at = ctypes.c_void_p(), ctypes.c_uint64()
    check(cuda.cuInit(0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), gpu))
    check(cuda.cuCtxSetCurrent(context))
    check(cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size)))
    if managed:
        more = ctypes.c_uint64()
        check(cuda.cuMemAllocManaged(ctypes.byref(more), ctypes.c_size_t(managed), 1))
    pattern = os.urandom(PATTERN)
    ends = (at.value, at.value + size - PATTERN)
    for end in ends:
        check(cuda.cuMemcpyHtoD_v2(ctypes.c_uint64(end), pattern, ctypes.c_size_t(PATTERN)))
    print(f"{at.value} {zlib.crc32(pattern + pattern)}", flush=True)
    for line in sys.stdin:
        if line.startswith("sum"):
            here = b""
            for end in ends:
                part = ctypes.create_string_buffer(PATTERN)
                check(cuda.cuMemcpyDtoH_v2(part, ctypes.c_uint64(end), ctypes.c_size_t(PATTERN)))
                here += part.raw
            print(f"{at.value} {zlib.crc32(here)}", flush=True)
        elif line.startswith("fork"):  # a child that has the driver's file mapped, as its parent has
            if not os.fork():
                signal.pause()
            print("forked", flush=True)
        elif line.startswith(("park", "unpark")):  # this process itself
            outcome = client.park(inside=Inside()) if line.startswith("park") else client.unpark()
            print(*(one.reason.name for one in outcome.refusals), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
