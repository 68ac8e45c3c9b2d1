"""What a kernel says of its own TensorFlow: plain data, which the kernel alone can know. Who fills it in: elsewhere."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, replace


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
class Torch:
    """What PyTorch's caching allocator says of one GPU.

    Attributes:
        allocated: bytes of tensors, as `torch.cuda.memory_allocated` has them.
        reserved: bytes that it has taken from the driver, as `torch.cuda.memory_reserved` has them.
    """

    allocated: int
    reserved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """What this kernel does, or will do, with one GPU.

    Attributes:
        gpu: the `Gpu.label` it speaks of; its UUID, where the kernel has not looked at the machine's GPUs.
        policy: in words, ``limit 2 GiB``, ``growth``, ``hidden``, ``default: takes all``; empty when unknown.
        logical: TensorFlow's logical GPUs on it, in TensorFlow's order; empty when hidden.
        torch: PyTorch's figures; None where it has not used the GPU.
    """

    gpu: str
    policy: str = ""
    logical: tuple[LogicalGpu, ...] = ()
    torch: Torch | None = None

    @property
    def in_use(self) -> int | None:
        """Bytes in use by TensorFlow, of all logical GPUs together; None unless all are known and there are any."""
        return _sum([logical.in_use for logical in self.logical])

    @property
    def peak(self) -> int | None:
        """The sum of the logical GPUs' peaks, which may have been at different times; None as for `in_use`."""
        return _sum([logical.peak for logical in self.logical])

    @property
    def taken(self) -> int | None:
        """Bytes that TensorFlow and PyTorch surely hold: in use by the one, reserved by the other; None if unknown."""
        reserved = self.torch.reserved if self.torch else None
        known = [size for size in (self.in_use, reserved) if size is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One kernel's own word.

    Attributes:
        pid: the kernel's process id, in its own namespace; one that was read has the reader's (`postings`).
        summary: one sentence for people, such as ``TensorFlow 2.21.0 is using the GPUs since In [3].``
        uses: a `GpuUse` for each GPU that the kernel knows something about.
        notes: what a reader must know besides, a sentence each.
        stage: how far TensorFlow has come: the value of a `config.state.Stage`.
        notebook: the notebook's path as the kernel was told it; empty when it was not.
        busy: whether a cell is running, or an isolated one that goes on by itself; None where nobody watches.
        active: when that last changed, in seconds since the epoch.
        used_since: when it was first seen to have taken memory, in seconds since the epoch; None if it has none.
    """

    pid: int
    summary: str
    uses: tuple[GpuUse, ...] = ()
    notes: tuple[str, ...] = ()
    stage: str = ""
    notebook: str = ""
    busy: bool | None = None
    active: float | None = None
    used_since: float | None = None

    @property
    def goes_on(self) -> bool:
        """Whether there is soon a newer one, since the figures may change meanwhile."""
        return bool(self.busy) or any(use.in_use is not None for use in self.uses)

    def without_figures(self) -> Report:
        """Return the same with nothing known of what is in use."""
        uses = (
            replace(use, torch=None, logical=tuple(replace(one, in_use=None, peak=None) for one in use.logical))
            for use in self.uses
        )
        return replace(self, uses=tuple(uses))

    def to_json(self) -> str:
        """Write it as one line of JSON."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Read what `to_json` wrote.

        Raises:
            ValueError: the text is not a report.
        """
        try:
            fields = json.loads(text)
            uses = tuple(_use(**use) for use in fields.pop("uses"))
            return cls(uses=uses, **(fields | {"notes": tuple(fields["notes"])}))
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a report: {error}") from error


def _use(*, logical: list[dict[str, object]], torch: dict[str, int] | None, gpu: str, policy: str) -> GpuUse:
    return GpuUse(
        gpu=gpu,
        policy=policy,
        logical=tuple(LogicalGpu(**one) for one in logical),  # type: ignore[arg-type]
        torch=None if torch is None else Torch(**torch),
    )


def _sum(sizes: list[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None
