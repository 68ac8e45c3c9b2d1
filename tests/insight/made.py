"""Arrays and holdings that are made up."""

from __future__ import annotations

from tfgpu_magic.frameworks.array import Array
from tfgpu_magic.insight.names import Holding, Name, Scope


def array(
    size: int,
    address: int | None = None,
    *,
    framework: str = "TensorFlow",
    device: str = "GPU:0",
    what: str = "tensor",
    dtype: str = "float32",
    rest: bool = False,
) -> tuple[str, Array]:
    """Return an array with its framework's name; its shape is that of its size in floats."""
    return framework, Array(None, what, dtype, (size // 4,), size, device, address, rest=rest)


def holding(
    name: str | tuple[str, ...],
    size: int,
    *,
    scopes: tuple[Scope, ...] = (),
    others: tuple[Name, ...] = (),
    framework: str = "TensorFlow",
    device: str = "GPU:0",
    what: str = "tensor",
    count: int = 1,
    partial: bool = False,
) -> Holding:
    """Return a holding; its shape is that of its size in floats, if it is one array."""
    parts = (name,) if isinstance(name, str) and name else tuple(name)
    return Holding(
        name=Name(parts, scopes),
        others=others,
        framework=framework,
        device=device,
        what=what,
        dtype="float32" if count == 1 else "",
        shape=(size // 4,) if count == 1 else (),
        size=size,
        count=count,
        partial=partial,
    )
