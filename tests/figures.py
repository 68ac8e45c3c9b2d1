"""What frameworks say of a GPU, for tests that make up reports."""

from __future__ import annotations

from tfgpu_magic.ground.report import Figure


def tensorflow(in_use: int, peak: int = 0) -> tuple[Figure, ...]:
    """Return TensorFlow's figures."""
    return (
        Figure(framework="TensorFlow", what="in use", size=in_use, used=True, taken=True),
        Figure(framework="TensorFlow", what="peak", size=peak, peak=True),
    )


def pytorch(allocated: int, reserved: int, *, peak: int | None = None) -> tuple[Figure, ...]:
    """Return PyTorch's figures; its peak is what it has allocated now, if not said."""
    return (
        Figure(framework="PyTorch", what="allocated", size=allocated, used=True),
        Figure(framework="PyTorch", what="peak", size=allocated if peak is None else peak, peak=True),
        Figure(framework="PyTorch", what="reserved", size=reserved, taken=True),
    )


def jax(in_use: int, pool: int, limit: int) -> tuple[Figure, ...]:
    """Return JAX's figures; its peak is what is in use now."""
    return (
        Figure(framework="JAX", what="in use", size=in_use, used=True),
        Figure(framework="JAX", what="peak", size=in_use, peak=True),
        Figure(framework="JAX", what="pool", size=pool, taken=True),
        Figure(framework="JAX", what="limit", size=limit),
    )
