"""What a kernel says of its own TensorFlow: plain data, which the kernel alone can know. Who fills it in: elsewhere."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicalGpu:
    """One logical GPU of TensorFlow.

    Attributes:
        name: TensorFlow's name, ``GPU:0``.
        in_use: bytes that TensorFlow's allocator has handed out now; None before TensorFlow is ready.
        peak: the most bytes it has handed out at once since the last reset; None before TensorFlow is ready.
        limit: bytes that its pool may take; None without a limit.
    """

    name: str
    in_use: int | None = None
    peak: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """What this kernel does, or will do, with one GPU.

    Attributes:
        gpu: the `Gpu.label` it speaks of.
        policy: in words, ``limit 2 GiB``, ``growth``, ``hidden``, ``all that is free``; empty when unknown.
        logical: TensorFlow's logical GPUs on it, in TensorFlow's order; empty when hidden.
    """

    gpu: str
    policy: str = ""
    logical: tuple[LogicalGpu, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One kernel's own word.

    Attributes:
        pid: the kernel's process id, in its own namespace.
        summary: one sentence for people, such as ``TensorFlow 2.21.0 is using the GPUs since In [3].``
        uses: a `GpuUse` for each GPU that the kernel knows something about.
        notes: what a reader must know besides, a sentence each.
    """

    pid: int
    summary: str
    uses: tuple[GpuUse, ...] = ()
    notes: tuple[str, ...] = ()
