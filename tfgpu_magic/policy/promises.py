"""What this user's other processes may yet take of each GPU, by their claims, and what is left. Pure.

A promise is for one process and one GPU: the larger of what the process holds by the driver's account, and of what its
policy lets it take, CUDA's context included. Growth without a limit, and TensorFlow's default, promise nothing. Other
users' memory counts as what the driver shows, since nobody can see their policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tfgpu_magic.ground.message import Message, format_list, msg, paragraph, warning
from tfgpu_magic.ground.snapshot import Gpu
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.policy.memory import context_bytes, reserve_bytes

if TYPE_CHECKING:
    from tfgpu_magic.policy.fit import Device

MOST_NAMED = 5
"""How many of a GPU's processes are named in a sentence."""


class Promise(NamedTuple):
    """What one other process of this user holds, and may yet take, of one GPU.

    Attributes:
        gpu: the GPU's UUID.
        pid: the process, as in `Report.pid`; None for an isolated call that has not started.
        size: bytes that it may hold in all, CUDA's context included; None where nothing limits it.
        held: bytes that it holds.
    """

    gpu: str
    pid: int | None = None
    size: int | None = None
    held: int = 0

    @property
    def total(self) -> int:
        """Bytes that are promised to it: those that it holds count in any case."""
        return max(self.size or 0, self.held)

    @property
    def owed(self) -> int:
        """Bytes of the promise that it has not taken yet."""
        return self.total - self.held


def owed(promises: Iterable[Promise], gpu: Gpu) -> int:
    """Return the bytes of a GPU that are promised to others and not taken yet."""
    return sum(one.owed for one in promises if one.gpu == gpu.uuid)


def available(promises: Iterable[Promise], gpu: Gpu) -> int:
    """Return the bytes that a limit may have beside what is promised, and what CUDA's libraries need; -1 if unknown."""
    if gpu.mig or gpu.free is None or gpu.total is None:
        return -1
    room = gpu.free - context_bytes(gpu.total)
    return room - max(owed(promises, gpu), reserve_bytes(room, gpu.capability))


def notes(
    devices: Sequence[Device], promises: Sequence[Promise], owners: Callable[[], Mapping[int, str]]
) -> list[Message]:
    """Return what is to be said of the GPUs on which promises pass what there is.

    Args:
        devices: the GPUs, and what this process is to take of each.
        promises: those of the other processes.
        owners: returns the name of each process by its pid; called only when one is named.
    """
    names: Mapping[int, str] | None = None
    alike: dict[Message, list[str]] = {}  # GPUs of which the same is to be said are named together
    for device in devices:
        here = [one for one in promises if one.gpu == device.gpu.uuid]
        if passed(device, here):
            names = owners() if names is None else names
            alike.setdefault(_excess(device, here, names), []).append(device.gpu.label)
    return [warning("GPU {gpus}: {text}", gpus=", ".join(labels), text=text) for text, labels in alike.items()]


def passed(device: Device, promises: Sequence[Promise]) -> bool:
    """Return whether more of a GPU is promised, with what this process is to take of it, than there is."""
    gpu, others = device.gpu, owed(promises, device.gpu)
    if not device.limits or not others or gpu.total is None or gpu.free is None:
        return False
    return sum(device.limits) + context_bytes(gpu.total) + others > gpu.free


def standing(
    gpus: Sequence[Gpu], promises: Sequence[Promise], owners: Callable[[], Mapping[int, str]]
) -> list[Message]:
    """Return a sentence for each GPU of which something is promised to others and not taken yet.

    Args:
        gpus: the machine's GPUs.
        promises: those of the other processes.
        owners: returns the name of each process by its pid; called only when one is named.
    """
    said: list[Message] = []
    for gpu in gpus:
        waiting = [one for one in promises if one.gpu == gpu.uuid and one.owed]
        if waiting:
            names = owners()
            parts = format_list(_some([_to(one.owed, _name(one, names)) for one in waiting]))
            said.append(msg("Memory of GPU {gpu} is promised and not taken yet: {parts}.", gpu=gpu.label, parts=parts))
    return said


def _excess(device: Device, here: Sequence[Promise], names: Mapping[int, str]) -> Message:
    """Return the sentence on a GPU of which more is promised than there is."""
    gpu = device.gpu
    mine = sum(device.limits) + context_bytes(gpu.total or 0)
    limited = [one for one in here if one.size is not None]
    usable = gpu.usable or 0
    rest = usable - (gpu.free or 0) - sum(one.held for one in limited)
    parts = format_list([*_fixed(here, names), _to(mine, "this")])
    held = f"; {rounded(rest)} are held besides" if rest > 0 else ""
    promised = mine + sum(one.total for one in limited) + max(rest, 0)
    said = msg(
        "with this, {promised} of its {usable} are promised: {parts}{held}.",
        promised=rounded(promised),
        usable=rounded(usable),
        parts=parts,
        held=held,
    )
    return paragraph((said, *_open(here, names), "The last to take its part finds too little: take a lower limit."))


def _fixed(here: Sequence[Promise], names: Mapping[int, str]) -> list[str]:
    """Return what is promised to each of the others whose promise has a size."""
    limited = [one for one in here if one.size is not None]
    parts = [_to(one.total, _name(one, names)) for one in limited[:MOST_NAMED]]
    if more := limited[MOST_NAMED:]:
        parts.append(_to(sum(one.total for one in more), _more(len(more))))
    return parts


def _to(size: int, whom: str) -> str:
    return f"{rounded(size)} to {whom}"


def _more(count: int) -> str:
    return f"{count} more"


def _open(here: Sequence[Promise], names: Mapping[int, str]) -> list[Message]:
    """Return a sentence on the processes that may take more than they hold, and nobody knows how much, if any."""
    found = [_name(one, names) for one in here if one.size is None]
    if len(found) == 1:
        return [msg("Without a limit, and counted as what it holds: {name}.", name=found[0])]
    said = [format_list(_some(found))] if found else []
    return [msg("Without a limit, and counted as what they hold: {names}.", names=names) for names in said]


def _some(texts: Sequence[str]) -> list[str]:
    more = len(texts) - MOST_NAMED
    return [*texts[:MOST_NAMED], _more(more)] if more > 0 else list(texts)


def _name(promise: Promise, names: Mapping[int, str]) -> str:
    if promise.pid is None:
        return "an isolated call"
    nameless = f"pid {promise.pid}" if promise.pid > 0 else "a notebook in another container"
    return names.get(promise.pid) or nameless
