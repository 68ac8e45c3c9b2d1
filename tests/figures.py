"""What frameworks say of a GPU, for tests that make up reports."""

from __future__ import annotations

from tfgpu_magic.monitor.report import Figure


def tensorflow(in_use: int, peak: int = 0) -> tuple[Figure, ...]:
    """Return TensorFlow's figures."""
    return (
        Figure(framework="TensorFlow", what="in use", size=in_use, used=True, taken=True),
        Figure(framework="TensorFlow", what="peak", size=peak, peak=True),
    )


def pytorch(allocated: int, reserved: int) -> tuple[Figure, ...]:
    """Return PyTorch's figures."""
    return (
        Figure(framework="PyTorch", what="allocated", size=allocated, used=True),
        Figure(framework="PyTorch", what="reserved", size=reserved, taken=True),
    )
