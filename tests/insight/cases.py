"""Lacks of memory and what holds it, made up for tests of what is decided on data."""

from __future__ import annotations

from typing import Any

from tests.rows import process_row
from tests.sizes import GIB
from tfgpu_magic.frameworks.pool import Pool
from tfgpu_magic.frameworks.shortage import Shortage
from tfgpu_magic.ground.rows import Notebook, ProcessRow
from tfgpu_magic.ground.snapshot import Gpu
from tfgpu_magic.insight.objects.names import Name, NamedMemory, Root
from tfgpu_magic.insight.why.explanation import Explanation


def shortage(gib: float | None = 2, **facts: Any) -> Shortage:
    """Return what TensorFlow's error says of so many GiB."""
    size = None if gib is None else int(gib * GIB)
    return Shortage(**({"framework": "TensorFlow", "device": "GPU:0", "size": size} | facts))


def pool(in_use: float = 0, limit: float | None = 1, *, peak: float = 0, **facts: Any) -> Pool:
    """Return TensorFlow's pool, in GiB."""
    sizes = {"in_use": int(in_use * GIB), "peak": int(peak * GIB)}
    most = None if limit is None else int(limit * GIB)
    return Pool(**({"framework": "TensorFlow", "name": "GPU:0", "gpu": "GPU-0", "limit": most} | sizes | facts))


def gpu(free: float | None = 4, total: float | None = 16) -> Gpu:
    """Return a GPU, in GiB."""
    used = None if free is None or total is None else int((total - free) * GIB)
    sizes = {name: None if size is None else int(size * GIB) for name, size in (("free", free), ("total", total))}
    return Gpu(0, name="A100", uuid="GPU-0", used=used, free=sizes["free"], total=sizes["total"])


def row(held: float, owner: str = "eval.ipynb", *, who: Any = "mine", state: str = "idle", pid: int = 7) -> ProcessRow:
    """Return a process that holds GiB, of a notebook that was active two hours before the epoch's 10,000th second."""
    notebook = Notebook(name=owner, state=state, active=10_000.0 - 7200.0) if who == "mine" else None
    return process_row(pid=pid, kind="C", who=who, owner=owner, held=int(held * GIB), notebook=notebook)


def case(**facts: Any) -> Explanation:
    """Return a lack of 2 GiB where the limit is 1 GiB, with facts of its own."""
    given: dict[str, Any] = {"time": 10_000.0, "seen": 10_000.0}
    given |= {"shortage": shortage(), "cause": "limit", "pool": pool(0.4, peak=0.5, capped=True), "gpu": gpu()}
    return Explanation(**(given | facts))


def holding(
    name: str | tuple[str, ...],
    size: int,
    *,
    within: tuple[str, ...] = (),
    root: Root = "name",
    others: tuple[Name, ...] = (),
    framework: str = "TensorFlow",
    device: str = "GPU:0",
    what: str = "tensor",
    count: int = 1,
    partial: bool = False,
) -> NamedMemory:
    """Return a holding; its shape is that of its size in floats, if it is one array."""
    parts = (name,) if isinstance(name, str) and name else tuple(name)
    return NamedMemory(
        name=Name(parts, within, root=root),
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
