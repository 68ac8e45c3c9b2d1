"""A stand-in for PyTorch built for CUDA: the names that the package uses, with memory of the driver that is there."""

import os

from . import cuda as cuda

__version__ = f"{os.environ.get('TORCH_STAND_IN', '2.13')}.0"


def zeros(size: int, device: str = "cuda:0") -> object:
    """Take so many bytes of a GPU through the allocator."""
    return cuda.Memory(size, int(device.partition(":")[2] or 0))
