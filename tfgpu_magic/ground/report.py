"""A kernel's or a program's report of itself and its frameworks, as plain data; `frameworks.self_report` makes it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from tfgpu_magic.ground import TENSORFLOW
from tfgpu_magic.ground.message import Message
from tfgpu_magic.ground.process_kind import RoomWait

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Data = TypeVar("Data")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicalGpu:
    """One logical GPU of TensorFlow.

    Attributes:
        name: TensorFlow's name, ``GPU:0``.
        limit: bytes that its pool may take; None without a limit.
    """

    name: str
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure of a framework's allocator on one GPU.

    Attributes:
        framework: the framework's name for people, ``PyTorch``.
        what: the figure's name for people, ``allocated``; the framework's own word where it has one.
        size: bytes.
        used: whether it counts what the process's own objects take now; at most one of a framework's figures does.
        taken: whether it counts what the process surely holds now; at most one of a framework's figures does.
        peak: whether it is the most that was in use at once.
    """

    framework: str
    what: str
    size: int
    used: bool = False
    taken: bool = False
    peak: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """What has become of a process's memory of a GPU that was parked.

    Attributes:
        size: bytes that are in host memory until the next cell; None where none are.
        back: seconds that bringing them back took the last time; None before, and while it is parked.
    """

    size: int | None = None
    back: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """What this kernel does, or will do, with one GPU.

    Attributes:
        gpu: the `Gpu.label`; the UUID, where the kernel has not looked at the machine's GPUs.
        policy: the policy for it in words: ``limit 2 GiB``, ``growth``, ``hidden``, ``default: no limit``, ``unknown``.
        logical: TensorFlow's logical GPUs on it, in TensorFlow's order; empty when hidden.
        figures: those of the frameworks that are awake and have used it.
        parked: what was parked of it.
    """

    gpu: str
    policy: str = ""
    logical: tuple[LogicalGpu, ...] = ()
    figures: tuple[Figure, ...] = ()
    parked: Parked = Parked()

    @property
    def names(self) -> str:
        """TensorFlow's names for the GPU: ``GPU:0 GPU:1``."""
        return " ".join(one.name for one in self.logical)

    @property
    def in_use(self) -> int | None:
        """Bytes that the process's own objects take, in all frameworks together; None where no figure has it."""
        sizes = [figure.size for figure in self.figures if figure.used]
        return sum(sizes) if sizes else None

    @property
    def least_held(self) -> int | None:
        """Bytes that the process surely holds, in all frameworks together; None where no figure has it."""
        sizes = [figure.size for figure in self.figures if figure.taken]
        return sum(sizes) if sizes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One kernel's report of itself.

    Attributes:
        pid: the kernel's process id in its own namespace; of a report that was read, in the reader's (`report_files`).
        summary: one sentence for people, such as ``TensorFlow 2.21.0 is using the GPUs since In [3].``
        uses: a `GpuUse` for each GPU of which the kernel has something to report.
        notes: what a reader must know besides.
        stage: how far TensorFlow has come: the value of a `policy.process_state.Stage`.
        notebook: the notebook's path as the server passed it to the kernel, or what a program is called, or its
            script's path; empty where that is not known.
        busy: whether a cell is running, or an isolated one in the background; None where that is not observed.
        active: when that last changed, in seconds since the epoch.
        used_since: when it was first seen to have taken memory, in seconds since the epoch; None if it has none.
        slot: its number in the ledger of claims; None where that is not known.
        kernel: the kernel's id (`pids.kernel_id`); empty of a program.
        waits: its wait for room, which goes on or was the last one; None if there was none, or it had no room.
        names: a server's report has nothing but this: the present paths of notebooks that it has renamed, by their
            kernels' ids.
    """

    pid: int
    summary: str
    uses: tuple[GpuUse, ...] = ()
    notes: tuple[Message, ...] = ()
    stage: str = ""
    notebook: str = ""
    busy: bool | None = None
    active: float | None = None
    used_since: float | None = None
    slot: int | None = None
    kernel: str = ""
    waits: RoomWait | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def changes_soon(self) -> bool:
        """Whether a newer report follows soon, since the figures may change meanwhile."""
        # With other frameworks alone a kernel that runs no cell sleeps, and its last report stays true.
        figures = [figure for use in self.uses for figure in use.figures]
        return bool(self.busy) or any(figure.framework == TENSORFLOW for figure in figures)

    def with_place(self, pid: int, notebook: str) -> Report:
        """Return the same report with the pid and the notebook's path as its reader has them."""
        return replace(self, pid=pid, notebook=notebook)

    def without_figures(self) -> Report:
        """Return the same report without figures."""
        return replace(self, uses=tuple(replace(use, figures=()) for use in self.uses))

    def to_json(self) -> str:
        """Write it as one line of JSON, without the notes, which are for this process's user."""
        fields = dataclasses.asdict(replace(self, notes=()))
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Read what `to_json` wrote.

        What a later package adds without another version is passed over, and what an earlier one lacks has its default,
        so that both see each other meanwhile.

        Raises:
            ValueError: the text is not a report.
        """
        try:
            fields = json.loads(text)
            uses = tuple(map(_use, fields["uses"]))
            waits = RoomWait(*found) if (found := fields.get("waits")) else None
            names = {str(kernel): str(path) for kernel, path in fields.get("names", {}).items()}
            return _from_known_fields(cls, {**fields, "uses": uses, "notes": (), "waits": waits, "names": names})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a report: {error}") from error


def _use(fields: dict[str, Any]) -> GpuUse:
    logical = tuple(_from_known_fields(LogicalGpu, one) for one in fields["logical"])
    figures = tuple(_from_known_fields(Figure, one) for one in fields["figures"])
    parked = _from_known_fields(Parked, fields["parked"])
    return _from_known_fields(GpuUse, {**fields, "logical": logical, "figures": figures, "parked": parked})


def _from_known_fields(cls: Callable[..., Data], fields: dict[str, Any]) -> Data:
    return cls(**{name: fields[name] for name in cls.__slots__ if name in fields})  # type: ignore[attr-defined]
