"""What a framework's error tells of memory that a GPU did not have, as plain data. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tfgpu_magic.ground.units import BINARY

Kind: TypeAlias = Literal["pool", "driver", "library"]
"""What found no memory: a framework's pool, CUDA's driver itself, or one of CUDA's libraries beside the pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """What an error says of memory that was missing.

    Attributes:
        framework: the name of the framework whose error it is.
        kind: what found no memory.
        certain: whether it says for certain that memory was missing; else that has to be seen from what is free.
        size: bytes that were asked for; None where it does not tell.
        shape: the shape of the tensor that was asked for; None where it does not tell.
        dtype: the type of its elements, as the framework calls it; empty where it does not tell.
        device: the GPU, as the framework names it: ``GPU:0``, ``cuda:0``; empty where it does not tell.
        library: the library that found no memory, for people; empty where it was none.
        in_use: bytes that were in use then; None where it does not tell.
    """

    framework: str
    kind: Kind = "pool"
    certain: bool = True
    size: int | None = None
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    device: str = ""
    library: str = ""
    in_use: int | None = None


DRIVERS = re.compile(r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation:")
"""What CUDA itself says to a program for which it has no memory; frameworks, Numba and CuPy pass it on."""

LIBRARIES = (
    ("cuDNN", re.compile(r"cudnn|\bDNN (?:library|support)|convolution algorithm|\bDnnSupport\b", re.IGNORECASE)),
    ("cuBLAS", re.compile(r"cublas|\bBlas\b.*\b(?:launch|support)|BLAS operation", re.IGNORECASE)),
    ("cuSOLVER", re.compile(r"cusolver|gpusolver", re.IGNORECASE)),
    ("cuFFT", re.compile(r"cufft", re.IGNORECASE)),
)
"""CUDA's libraries, each with a pattern for what frameworks call it."""

# A library that cannot be started says so whatever the reason: in jax#28752 with 16 GB free, as the driver was too old.
_FAILED = re.compile(
    r"_STATUS_(?:NOT_INITIALIZED|INTERNAL_ERROR)|initialization failed|failed to initialize|[Ff]ailed to create|"
    r"(?:[Cc]ould not|[Uu]nable to) (?:create|find a valid)|(?i:without|no) (?i:BLAS|DNN) support|"
    r"Blas \w*GEMM\w* launch failed|[Nn]o algorithm worked|[Uu]nable to find an engine|"
    r"best cudnn convolution algorithm|Create\(&handle\) failed"
)
# "Resource allocation failed inside the cuBLAS library, usually caused by a cudaMalloc() failure" (cuBLAS, "Status").
_ALLOCATION = re.compile(r"(?:CUDNN|CUBLAS|CUSOLVER|CUFFT)_(?:STATUS_)?ALLOC_FAILED")


def parse_library_error(framework: str, text: str) -> Shortage | None:
    """Return what an error of one of CUDA's libraries says; None for any other error.

    Args:
        framework: the framework that raised it.
        text: its text.
    """
    certain = _ALLOCATION.search(text) is not None
    if not (certain or _FAILED.search(text)):
        return None
    for name, pattern in LIBRARIES:
        if pattern.search(text):
            return Shortage(framework=framework, kind="library", certain=certain, library=name)
    return None


def size_of(shape: tuple[int, ...], dtype: str) -> int | None:
    """Return the bytes of a tensor; None where the type's size is unknown."""
    bits = _BITS.get(dtype)
    return None if bits is None else math.prod(shape) * bits // 8


# The names that TensorFlow's errors have (`DataTypeString`).
_BITS = {
    **dict.fromkeys(("bool", "int8", "uint8", "qint8", "quint8", "float8_e5m2", "float8_e4m3fn"), 8),
    **dict.fromkeys(("half", "bfloat16", "int16", "uint16", "qint16", "quint16"), 16),
    **dict.fromkeys(("float", "int32", "uint32", "qint32"), 32),
    **dict.fromkeys(("double", "int64", "uint64", "complex64"), 64),
    "complex128": 128,
}

_SIZE = re.compile(r"([\d.]+) ?([KMGT]iB|B|bytes?)?")


def parse_size(text: str) -> int | None:
    """Return a size as frameworks write it, ``2.00GiB``, ``20.00 MiB``, ``2147483648 bytes``; None for another text."""
    found = _SIZE.fullmatch(text.strip())
    try:
        return None if found is None else int(float(found[1]) * BINARY.get(found[2] or "", 1))
    except ValueError:  # several points
        return None
