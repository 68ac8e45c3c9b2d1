"""Whether each GPU has what is asked of it; if not, what is missing, and who holds it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from tfgpu_magic.ground.message import Message, join_lines, msg, warning
from tfgpu_magic.ground.snapshot import Gpu, Process
from tfgpu_magic.ground.units import MIB, rounded
from tfgpu_magic.policy.memory import LEAST_LIMIT, capacity, context_bytes, reserve_bytes
from tfgpu_magic.policy.policy import Memory

MOST_HOLDERS = 5
"""How many of a GPU's processes are named when memory is missing."""


class Device(NamedTuple):
    """A GPU that TensorFlow will see, and what it is to take of it.

    Attributes:
        gpu: the GPU.
        limits: bytes of each of its logical GPUs, whole MiB as TensorFlow counts; empty without a limit.
        words: the request that decides this, if any.
        capped: whether that is only the process's ceiling, as nothing lower was asked.
        with_context: whether what was asked has CUDA's context in it, which the limits leave room for.
    """

    gpu: Gpu
    limits: tuple[int, ...] = ()
    words: Memory | None = None
    capped: bool = False
    with_context: bool = False


Problem: TypeAlias = tuple[Device, Message]
"""A device that lacks what is asked of it, and why, in one sentence."""


def crowding(devices: Sequence[Device], *, grows: bool) -> list[Message]:
    """Return warnings for the GPUs on which limits leave CUDA's libraries less room than TensorFlow itself would."""
    alike: dict[tuple[str, str], list[str]] = {}
    for device in devices:
        gpu, total, free = device.gpu, device.gpu.total, device.gpu.free
        if grows or not device.limits or total is None or free is None:
            continue
        room = free - context_bytes(total)
        left, usual = room - sum(device.limits), reserve_bytes(room, gpu.capability)
        # Parts of what is free leave as much as TensorFlow would; less than a MiB is from rounding.
        if left < usual - MIB and not (device.words is not None and device.words.of_free):
            alike.setdefault((rounded(left), rounded(usual)), []).append(gpu.label)
    return [
        warning(
            "of GPU {gpus} this leaves {left} for CUDA's libraries (cuDNN, cuBLAS, NCCL), which no limit "
            "counts; TensorFlow itself would leave {usual}. If an operation fails for it, take a lower limit.",
            gpus=", ".join(labels),
            left=left,
            usual=usual,
        )
        for (left, usual), labels in alike.items()
    ]


def problems(devices: Sequence[Device]) -> list[Problem]:
    """Return each device that lacks something of what is asked of it, and why, in one sentence."""
    return [(device, why) for device in devices if (why := _problem(device) or _lack(device)) is not None]


def at_start(devices: Sequence[Device]) -> list[Problem]:
    """Return the problems at TensorFlow's start: a cap that is grown into takes only a context then."""
    return [found for found in problems(devices) if not _grows(found[0]) or _problem(found[0]) is not None]


def out_of_reach(devices: Sequence[Device]) -> list[Problem]:
    """Return each device whose cap cannot be grown into in full as things are."""
    return [found for found in problems(devices) if _grows(found[0]) and _problem(found[0]) is None]


def describe(
    found: Sequence[Problem],
    processes: Sequence[Process] | None = None,
    names: Mapping[int, str] = MappingProxyType({}),
) -> Message:
    """Return the problems, with the processes that hold the memory.

    Args:
        found: what `problems` returned.
        processes: all processes on all GPUs; None where they are not to be named.
        names: the name of each process by its pid.
    """
    alike: dict[Message, list[str]] = {}  # GPUs with the same problem are named together
    for device, problem in found:
        named = processes is not None and _is_short(device)
        text = join_lines([problem, *(holders(device.gpu, processes or (), names) if named else ())])
        alike.setdefault(text, []).append(device.gpu.label)
    return join_lines(msg("GPU {gpus}: {text}", gpus=", ".join(labels), text=text) for text, labels in alike.items())


def _grows(device: Device) -> bool:
    return device.words is not None and device.words.limited and device.words.grows


def _problem(device: Device) -> Message | None:
    """Return why the GPU cannot be used as it is asked, in one sentence; None where it can."""
    gpu, total, free = device.gpu, device.gpu.total, device.gpu.free
    if gpu.lost:
        return msg("{error}. TensorFlow would fail on it.", error=gpu.error)
    if total is None or free is None:
        return None  # nothing is known, and the plan notes that
    wanted, context = sum(device.limits), context_bytes(total)
    if free < context and (_grows(device) or not device.limits):
        return msg(
            "{free} of {total} are free, and TensorFlow needs about {context} for CUDA's context on every GPU that it "
            "sees. Its first op would fail there, and the next may hang for good.",
            free=rounded(free),
            total=capacity(gpu),
            context=rounded(context),
        )
    if not device.limits:
        return None
    if wanted > (gpu.capacity or 0):
        has = f"the {rounded(total)} it has" if gpu.limit is None else capacity(gpu)
        return msg(
            "{wanted}, more than {has}. TensorFlow would take less, and not say so.", wanted=_wanted(device), has=has
        )
    if min(device.limits) < LEAST_LIMIT:
        limit = rounded(min(device.limits)) if device.words is None else device.words.smallest(device.limits)
        if device.words is not None and device.words.of_free:
            limit = f"{limit} of the {rounded(free)} that are free"
        limit = f"{limit} with CUDA's context in it" if device.with_context else limit
        return msg("{limit} is too little to work with; {least} is the least.", limit=limit, least=rounded(LEAST_LIMIT))
    return None


def _lack(device: Device) -> Message | None:
    """Return what is missing of what is asked, in one sentence; None where nothing is."""
    total, free = device.gpu.total, device.gpu.free
    if total is None or free is None or not device.limits:
        return None
    wanted, context = sum(device.limits), context_bytes(total)
    if wanted + context <= free:
        return None
    own = "{wanted}, and CUDA's context takes about {context} more"
    share = "{share} of the {usable} that processes can have is {size}, with CUDA's context in it"
    return msg(
        f"{share if device.with_context else own}; {{free}} of {{total}} are free.",
        wanted=_wanted(device),
        context=rounded(context),
        share=device.words and device.words.need,
        usable=rounded(device.gpu.usable),
        size=rounded(wanted + context),
        free=rounded(free),
        total=capacity(device.gpu),
    )


def _is_short(device: Device) -> bool:
    """Return whether memory is missing that other processes hold, so that they are to be named."""
    gpu, wanted = device.gpu, sum(device.limits)
    if gpu.lost or gpu.total is None or gpu.free is None or wanted > (gpu.capacity or 0):
        return False
    of_free = device.words is not None and device.words.of_free
    return of_free or wanted + context_bytes(gpu.total) > gpu.free


def _wanted(device: Device) -> str:
    """Return what is asked of a GPU, as it was written and in bytes: ``40% is 3.2 GiB``."""
    if device.words is None:
        return f"the limit is {rounded(sum(device.limits))}"
    return device.words.wanted(device.limits)


def holders(gpu: Gpu, processes: Sequence[Process], names: Mapping[int, str]) -> list[str]:
    """Return a line for each process on the GPU, the largest first."""
    here = [process for process in processes if process.gpu == gpu.label]
    here.sort(key=lambda process: -(process.held or 0))
    rest = gpu.unattributed(process.held for process in here) if gpu.listed else None
    lines = [(rounded(p.held), names.get(p.pid, f"pid {p.pid}")) for p in here[:MOST_HOLDERS]]
    if more := here[MOST_HOLDERS:]:
        lines.append(("", f"and {len(more)} more"))
    if rest:
        lines.append((rounded(rest), "no process is listed for it"))
    return [f"{size:>10}  {name}" for size, name in lines]
