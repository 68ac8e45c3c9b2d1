"""Holdings that are made up."""

from __future__ import annotations

from tfgpu_magic.insight.accounts import Holding
from tfgpu_magic.insight.names import Name, Scope


def holding(
    name: str | tuple[str, ...],
    size: int,
    address: int | None = None,
    *,
    scopes: tuple[Scope, ...] = (),
    others: tuple[Name, ...] = (),
    framework: str = "TensorFlow",
    device: str = "GPU:0",
    what: str = "tensor",
    dtype: str = "float32",
    shape: tuple[int, ...] | None = None,
) -> Holding:
    """Return a holding; its shape is that of its size in floats, if not said."""
    parts = (name,) if isinstance(name, str) and name else tuple(name)
    return Holding(
        name=Name(parts, scopes),
        others=others,
        framework=framework,
        device=device,
        what=what,
        dtype=dtype,
        shape=(size // 4,) if shape is None else shape,
        size=size,
        address=address,
        key=0,
    )
