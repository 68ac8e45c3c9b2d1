"""The sentences on why a process is not parked, or does not come back, and on what to do next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfgpu_magic.parking import refusals as why
from tfgpu_magic.units import rounded

_SENTENCES: dict[type[why.Refusal], Callable[[Any], str]] = {
    why.SwitchedOff: lambda _: (
        'Parking is off there. Its notebook switches it on with `%config TfGpuMagics.parking = "ask"`.'
    ),
    why.NoDriver: lambda one: f"The driver gives no figures: {one.error}",
    why.OldDriver: lambda one: (
        f"Parking needs driver {one.least} or newer, and this is {one.version or 'an unknown one'}. Update it."
    ),
    why.OtherArchitecture: lambda one: f"Parking is not offered for this processor ({one.architecture}).",
    why.OpenModule: lambda one: (
        f"The open kernel module ({one.version}) is loaded: the end of a process that was restored has stopped whole "
        "hosts with it. Only an administrator can allow it."
    ),
    why.UnknownModule: lambda _: "It is not known which of the driver's kernel modules is loaded.",
    why.MigGpu: lambda one: f"GPU {one.gpu} is divided by MIG, and the driver cannot park what is on a part.",
    why.UnifiedMemory: lambda one: f"GPU {one.gpu} shares the machine's memory, so nothing would be gained.",
    why.Ended: lambda _: "It has ended.",
    why.NotYours: lambda _: "It is another user's.",
    why.Stopped: lambda _: "It is stopped by a signal or a debugger. `kill -CONT` lets it go on.",
    why.HoldsNothing: lambda _: "It holds no GPU memory.",
    why.HeldUnknown: lambda _: "The driver does not tell what it holds.",
    why.ManagedMemory: lambda _: "It uses managed memory, which cannot be parked.",
    why.Children: lambda one: (
        f"Processes that it has started use the GPU too (pid {', '.join(map(str, one.pids))}). End them first."
    ),
    why.HostMemory: lambda one: (
        f"It needs {rounded(one.needed)} of host memory, and {rounded(one.left)} are left to it."
    ),
    why.NoWayBack: lambda one: (
        f"It holds so much of GPU {one.gpu} that it could not be made sure to come back: that takes "
        f"{rounded(one.needed)} of {rounded(one.usable)}."
    ),
    why.NotAsked: lambda _: (
        "It cannot be asked: it is no kernel of IPython's that has loaded tfgpu_magic, or one with another version."
    ),
    why.Busy: lambda _: "A cell runs there. Ask again when it has ended.",
    why.Threads: lambda one: f"Threads of its own may use the GPU at any time: {', '.join(one.names)}.",
    why.Nccl: lambda _: "NCCL has started in it, and a process with NCCL cannot be parked.",
    why.SharedMemory: lambda _: "It shares GPU memory with another process.",
    why.Elsewhere: lambda _: "Something else has locked it, or has moved its GPU state away.",
    why.Unanswered: lambda _: "The driver has not answered in time. What has become of it is being found out.",
    why.StillWorking: lambda one: f"Its work on the GPU did not end within {one.seconds:g} s. It goes on.",
    why.Declined: lambda one: f"The driver declines ({one.call}: {one.code}). It goes on as before.",
    why.Lost: lambda _: "Its GPU state is lost. Restart its kernel, which frees what it holds.",
    why.NotParked: lambda _: "It is not parked.",
    why.Unrecorded: lambda one: f"Nothing was done: {one.error}",
    why.Cancelled: lambda _: "It was called off. It is parked as before.",
}


def sentence(refusal: why.Refusal) -> str:
    """Return why something is not done, and what to do next."""
    return _SENTENCES[type(refusal)](refusal)


def sentences(refusals: Sequence[why.Refusal]) -> str:
    """Return all reasons, one after the other."""
    return " ".join(map(sentence, refusals))
