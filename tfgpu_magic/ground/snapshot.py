"""A machine's GPUs and their processes at one time, as plain data with one JSON form. An `NvmlReader` makes it."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tfgpu_magic.ground.units import BINARY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence, Set
    from typing import Any

SIMULATED = "Simulated"
"""The prefix of the name of every GPU of a simulated machine."""

SMALLEST_REST = 256 * BINARY["MiB"]
"""Bytes in use without a process from which on they are told: the driver itself takes less."""

Record = TypeVar("Record", "Gpu", "Process")

_SHORT = 12  # characters of the UUID of a GPU whose number is not known

_JSON = json.JSONEncoder(separators=(",", ":"))


class Gpu(NamedTuple):
    """One GPU, or one MIG instance of a GPU. All sizes are bytes; None is unknown.

    Attributes:
        index: the number of the GPU, as the driver counts; MIG instances carry their parent's. Negative where the
            driver cannot be asked.
        instance: the number of the MIG instance on its parent, None for a whole GPU.
        uuid: ``GPU-...`` or ``MIG-...``, as `CUDA_VISIBLE_DEVICES` takes it.
        name: the product's name.
        total: bytes of memory.
        used: bytes that the driver counts as used.
        free: bytes that the driver counts as free; of a GPU with a `limit`, those of them that this process can have.
        reserved: bytes that driver and firmware keep for themselves; part of neither `used` nor `free`.
        capability: CUDA compute capability as (major, minor).
        multiprocessors: how many streaming multiprocessors it has.
        sensors: what its sensors tell, by their names: percent, degrees Celsius and watts.
        mig: whether MIG is on, so that CUDA sees its instances and not the GPU itself.
        exclusive: whether its compute mode lets only one process, or none, have a CUDA context there.
        unified: whether memory is shared with the CPU; `total` is then the machine's memory.
        listed: whether the driver gave the list of this GPU's processes.
        refused: whether the driver refused the list; `error` then says why.
        lost: whether the driver cannot reach it, so that nothing can run on it.
        error: why figures are missing, in half a sentence; None when all is well.
        limit: the most that the driver lets this process's cgroup have, with all that runs in it; None without a limit.
            In the cgroup that is limited itself `total` is that too, and in one below it the whole GPU's.
        used_then: what `used` was when the list of its processes was read.
    """

    index: int  # type: ignore[assignment]  # and no method of tuples
    instance: int | None = None
    uuid: str | None = None
    name: str | None = None
    total: int | None = None
    used: int | None = None
    free: int | None = None
    reserved: int | None = None
    capability: tuple[int, int] | None = None
    multiprocessors: int | None = None
    sensors: dict[str, float | None] = {}  # noqa: RUF012  nobody changes it
    mig: bool = False
    exclusive: bool = False
    unified: bool = False
    listed: bool = True
    refused: bool = False
    lost: bool = False
    error: str | None = None
    limit: int | None = None
    used_then: int | None = None

    @property
    def label(self) -> str:
        """Its name for people: ``0``, or ``0.1`` for the MIG instance 1 of GPU 0; else how its UUID begins."""
        if self.index < 0:
            return (self.uuid or "")[:_SHORT]
        return str(self.index) if self.instance is None else f"{self.index}.{self.instance}"

    @property
    def utilisation(self) -> float | None:
        """Percent of the driver's last sampling period, of a second at most, in which any kernel ran."""
        return self.sensors.get("utilisation")

    @property
    def capacity(self) -> int | None:
        """The bytes that a share of it is a share of: its memory, or what the driver's limit lets this process have."""
        return self.total if self.total is None or self.limit is None else min(self.total, self.limit)

    @property
    def usable(self) -> int | None:
        """The bytes that processes here can share: what driver and firmware keep is never among them."""
        known = None if self.total is None else self.total - (self.reserved or 0)
        return known if known is None or self.limit is None else min(known, self.limit)

    def unattributed(self, held: Iterable[int | None]) -> int | None:
        """Return the bytes in use beyond these; None where that is unknown, or no more than the driver itself takes."""
        sizes = list(held)
        if self.used is None or self.mig or None in sizes:
            return None
        rest = self.used - sum(size or 0 for size in sizes)
        return rest if rest > max(SMALLEST_REST, (self.total or 0) // 100) else None

    @property
    def simulated(self) -> bool:
        """Whether it is a GPU of a simulated machine."""
        return self.name is not None and self.name.startswith(SIMULATED)


class Process(NamedTuple):
    """What one process holds on one GPU or MIG instance; a tuple, since there may be thousands.

    Attributes:
        gpu: the label of its GPU.
        pid: the process id, as the driver gives it; 0 or less, which no message has, for several or none.
        kind: ``C``, ``G``, ``C+G`` or ``M+C``: compute, graphics, MPS; empty where the driver does not list it.
        held: bytes by the driver's account, context included; None where the driver has no figure. In a message its
            own figure where there is no `kind`.
        utilisation: percent of the multiprocessors' time that its kernels took, in the last of the driver's samples
            since the lists were read before; 0 where there is none, and None where the driver does not tell.
        uid: the number of its user; this and what follows is the collector's, and None where it is not known.
        began: when it began (`pids.start_time`).
        unused: since when it has held memory without using the GPU, in seconds since the epoch; None while it uses it.
        cgroup: the part of its cgroup that names a unit, a pod or a container (`cgroups.named`).
    """

    gpu: str
    pid: int = 0
    kind: str = ""
    held: int | None = None
    utilisation: int | None = None
    uid: int | None = None
    began: int | None = None
    unused: float | None = None
    cgroup: str | None = None


class Snapshot(NamedTuple):
    """All GPUs and their processes at one time.

    Attributes:
        time: seconds since the epoch when the reading was done.
        driver: the driver's version.
        gpus: every GPU in the order of its number, each GPU's MIG instances after it.
        processes: every process, in GPU order.
        error: why there is nothing to show (no driver, a hang), in words; None when the driver answered.
        absent: there is no driver or no GPU here, as opposed to one that fails or does not answer.
        notes: what a reader must know about the figures, a sentence each.
        listed_at: when the lists of processes were read, in seconds since the epoch; None when they never were.
        unasked: whether no driver was asked, since nvidia-ml-py is missing or of no use; `error` then says so.
    """

    time: float
    driver: str | None = None
    gpus: tuple[Gpu, ...] = ()
    processes: tuple[Process, ...] = ()
    error: str | None = None
    absent: bool = False
    notes: tuple[str, ...] = ()
    listed_at: float | None = None
    unasked: bool = False

    @property
    def simulated(self) -> bool:
        """Whether the GPUs are those of a simulated machine."""
        return any(gpu.simulated for gpu in self.gpus)

    def held_by(self, pid: int | None) -> dict[str, int]:
        """Return the bytes that a process holds of each GPU, by its label; nothing of one of which that is unknown."""
        found: dict[str, int] = {}
        for row in self.processes:
            if row.pid == pid and row.held is not None:
                found[row.gpu] = found.get(row.gpu, 0) + row.held
        return found

    def without_processes(self, pids: Set[int], held: Mapping[str, int]) -> Snapshot:
        """Return the snapshot as it will be without processes that hold so many bytes of each GPU, by its label."""
        gpus = tuple(
            gpu if gpu.free is None else gpu._replace(free=_free_after(gpu, held.get(gpu.label, 0)), used=None)
            for gpu in self.gpus
        )
        return self._replace(gpus=gpus, processes=tuple(row for row in self.processes if row.pid not in pids))

    def to_json(self) -> str:
        """Return the snapshot as one line of JSON: GPUs and processes field by field, each with all its values.

        Versions of this package share a board: a field is added at the end, has a default, and keeps its meaning.
        """
        records = {"gpus": _columns(Gpu, self.gpus), "processes": _columns(Process, self.processes)}
        return _JSON.encode(self._asdict() | records)

    @classmethod
    def from_json(cls, text: str) -> Snapshot:
        """Parse what `to_json` returned, of this version or another: what is not known is passed over.

        Raises:
            ValueError: the text is not a snapshot.
        """
        try:
            fields: dict[str, Any] = json.loads(text)
            gpus, processes = _records(Gpu, fields["gpus"]), _records(Process, fields["processes"])
            gpus = [gpu._replace(capability=gpu.capability and (*gpu.capability,)) for gpu in gpus]
            fields |= {"gpus": tuple(gpus), "processes": tuple(processes), "notes": tuple(fields["notes"])}
            return cls(**{name: fields[name] for name in cls._fields if name in fields})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a snapshot: {error}") from error


def _free_after(gpu: Gpu, held: int) -> int:
    most = (gpu.free or 0) + (held if gpu.used is None else min(held, gpu.used))
    return most if gpu.capacity is None else min(most, gpu.capacity)


def _columns(of: type[Record], records: Sequence[Record]) -> dict[str, Sequence[Any]]:
    """Return the values of records by field, of those fields in which any differs from the default."""
    columns = zip(of._fields, zip(*records, strict=True), strict=bool(records))
    default = of._field_defaults
    return {name: values for name, values in columns if values.count(default.get(name, values)) < len(values)}


def _records(of: type[Record], columns: Mapping[str, Sequence[Any]]) -> list[Record]:
    """Return the records that have these values; a field without any has its default."""
    count = max(map(len, columns.values()), default=0)
    values = (columns[name] if name in columns else [of._field_defaults[name]] * count for name in of._fields)
    return list(map(partial(tuple.__new__, of), zip(*values, strict=True))) if count else []
