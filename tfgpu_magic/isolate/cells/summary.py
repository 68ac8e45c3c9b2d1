"""The summary at the end of an isolated cell: its duration, its peak, what came back, what stayed behind. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tfgpu_magic.ground import TENSORFLOW, phrases
from tfgpu_magic.ground.answer import Quiet
from tfgpu_magic.ground.message import join_commas, msg
from tfgpu_magic.ground.report import GpuUse
from tfgpu_magic.ground.snapshot import Snapshot
from tfgpu_magic.ground.units import MIB, rounded
from tfgpu_magic.isolate.call import Outcome


def summarise(
    outcome: Outcome,
    before: Snapshot | None,
    after: Snapshot | None,
    pid: int | None,
    lost: Mapping[str, str] = MappingProxyType({}),
    hint: str | None = None,
) -> Quiet:
    """Return the summary of how a cell ended.

    Args:
        outcome: what came of it; nothing but its duration if it did not answer.
        before: the GPUs when it had answered, while it still held its memory; None if it did not answer.
        after: the GPUs when its process was gone; None if they were not read.
        pid: its process.
        lost: why something could not be unpickled in the notebook, by name; the value's name is empty.
        hint: a name of the notebook's that it may have missed.
    """
    parts = (phrases.seconds(outcome.seconds), *_peaks(outcome.uses, before), _back(outcome.uses, before, after, pid))
    lines = [msg("Isolated: {parts}.", parts=join_commas(parts))]
    for reasons, what in ((outcome.kept, "stays in its process"), (lost, "cannot be made again in this notebook")):
        for name, why in reasons.items():
            lines.append(msg("{name} {what}: {why}", name=name or "Its value", what=what, why=why))
    for names, what in (
        (() if outcome.failure else outcome.stays, "Gone with its process"),
        (outcome.changed, "Changed only there"),
    ):
        if names:
            text = "{what}: {names}. To bring back: -o {flag}"
            lines.append(msg(text, what=what, names=join_commas(names), flag=",".join(names)))
    if hint:
        text = "The notebook has {name}, which the cell's text does not name. To send it too: -i +{name}"
        lines.append(msg(text, name=hint))
    return Quiet(*lines)


def _peaks(uses: Sequence[GpuUse], before: Snapshot | None) -> list[str]:
    """Return the most that frameworks had in use on each GPU that they used."""
    labels = {gpu.uuid: gpu.label for gpu in before.gpus} if before is not None else {}
    found = []
    for use in uses:
        where = f" on GPU {labels[use.gpu]}" if use.gpu in labels else ""
        for figure in use.figures:
            if figure.peak and figure.size:
                whose = "" if figure.framework == TENSORFLOW else f"{figure.framework}'s "
                size = rounded(figure.size) if figure.size >= MIB else "below 1 MiB"
                found.append(f"{whose}{figure.what} {size} in use{where}")
    return found


def _back(uses: Sequence[GpuUse], before: Snapshot | None, after: Snapshot | None, pid: int | None) -> str:
    """Return what the driver had back when the process was gone."""
    if any(look is not None and look.error and not look.absent for look in (before, after)):
        return "what it held is N/A: the driver was not heard"
    if after is not None and any((left := after.held_by(pid)).values()):
        return f"and its process still holds {_amounts(left)}"
    if before is None:
        return "no GPU memory held any more"
    if any((held := before.held_by(pid)).values()):
        return f"{_amounts(held)} given back"
    if any(figure.peak and figure.size for use in uses for figure in use.figures) and after is not None:
        # The driver has another pid for the process than this machine: the figure includes other processes' changes.
        then = {gpu.uuid: gpu.used for gpu in before.gpus}
        less = {gpu.label: (then.get(gpu.uuid) or 0) - (gpu.used or 0) for gpu in after.gpus}
        found = {label: size for label, size in less.items() if size > 0}
        return f"about {_amounts(found)} given back" if found else "what it gave back is N/A"
    return "no GPU memory held"


def _amounts(held: dict[str, int]) -> str:
    """Return each GPU's amount; of many the two largest, and the sum of the others, which is contexts as a rule."""
    held = {label: size for label, size in held.items() if size}
    most = sorted(held, key=lambda label: -held[label])
    shown = [f"{rounded(held[label])} of GPU {label}" for label in held if label in most[: 3 if len(held) == 3 else 2]]
    rest = [held[label] for label in held if label not in most[: 3 if len(held) == 3 else 2]]
    *first, last = [*shown, f"{rounded(sum(rest))} of {len(rest)} other GPUs"] if rest else shown
    return f"{', '.join(first)} and {last}" if first else last
