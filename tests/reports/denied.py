"""Runs `tfgpu` where the kernel lets nobody open the driver's device file, as a container that has lost its devices.

A filter of system calls answers EPERM to whoever opens a file as the check does (O_NONBLOCK), and to nobody else.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

from tfgpu_magic.command.main import main

_OPENAT = {"x86_64": 257, "aarch64": 56}[platform.machine()]
_LOAD, _AND, _EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06  # linux/bpf_common.h, and seccomp(2)
_ASKED = os.O_NONBLOCK | os.O_RDWR
_FILTER = (
    (_LOAD, 0, 0, 0),  # the number of the call
    (_EQUAL, 0, 4, _OPENAT),
    (_LOAD, 0, 0, 32),  # its third argument
    (_AND, 0, 0, os.O_NONBLOCK | os.O_ACCMODE),
    (_EQUAL, 0, 1, _ASKED),
    (_RETURN, 0, 0, 0x00050000 | errno.EPERM),
    (_RETURN, 0, 0, 0x7FFF0000),
)


def deny() -> None:
    """Have this process and its children denied the file from now on."""
    filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in _FILTER))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(_FILTER), ctypes.addressof(filters)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program):  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
        raise OSError(ctypes.get_errno(), "no filter of system calls")


if __name__ == "__main__":
    deny()
    main(sys.argv[1:])
