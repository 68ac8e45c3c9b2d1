"""The answer of `%tf_gpu free`: what became free in the frameworks' pools, and what went back to the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfgpu_magic.monitor.report import TENSORFLOW
from tfgpu_magic.units import rounded
from tfgpu_magic.views.answer import Answer
from tfgpu_magic.views.tensors import called

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgpu_magic.insight.accounts import Device
    from tfgpu_magic.insight.freeing import Change, Outcome

_MOST_NAMES = 5
_KEEPS = (
    "TensorFlow keeps what became free for its next tensors, until its process ends. What goes back earlier: what is "
    "not in use under `%tf_gpu growth --release`, and all that a cell takes which begins with `%%tf_gpu isolate`."
)


@dataclass(frozen=True, slots=True, repr=False)
class Freed(Answer):
    """What became free.

    Attributes:
        outcome: the figures before and after, and what is still kept of what the deleted names led to.
    """

    outcome: Outcome

    @property
    def in_pools(self) -> int:
        """Bytes that became free in the frameworks' pools."""
        return sum(change.freed for change in self.outcome.in_use.values())

    @property
    def to_driver(self) -> int | None:
        """Bytes that went back to the driver; None where neither it nor a framework tells.

        They are the driver's own figure, or where it does not tell what this process holds, that of the frameworks.
        """
        held, given = self.outcome.held, self.outcome.given
        return sum(change.freed for change in held.values()) if held else sum(given.values()) if given else None

    def _parts(self) -> list[str]:
        outcome = self.outcome
        used = {device: change for device, change in outcome.in_use.items() if change.before or change.after}
        lines = [_in_pool(*one) for one in used.items()] or ["No framework has memory of a GPU in use here."]
        if outcome.held:
            lines += _to_driver(outcome.held)
        elif used or any(outcome.given.values()):
            lines.append(_by_frameworks(outcome.given))
        kept = any(framework == TENSORFLOW and change.freed for (framework, _), change in used.items())
        if kept and TENSORFLOW not in outcome.given:
            lines.append(_KEEPS)
        if outcome.remaining:
            lines.append(_remaining(outcome))
        if any(change.after for change in used.values()):
            lines.append("`%tf_gpu tensors` shows what holds the rest.")
        return lines


def _in_pool(device: Device, change: Change) -> str:
    framework, gpu = device
    if not change.freed:
        return f"{framework} on {gpu}: nothing became free, and {rounded(change.after)} are in use."
    left = f"{rounded(change.after)} are still in use" if change.after else "nothing is in use any more"
    return f"{framework} on {gpu}: {rounded(change.freed)} became free, and {left}."


def _to_driver(held: Mapping[str, Change]) -> list[str]:
    """Return a line for each GPU of which something went back to the driver; of none of them, what is held."""
    lines = [
        f"{rounded(change.freed)} of GPU {gpu} went back to the driver, "
        f"and this process still holds {rounded(change.after)}."
        for gpu, change in held.items()
        if change.freed
    ]
    if not lines:
        holds = ", ".join(f"{rounded(change.after)} of GPU {gpu}" for gpu, change in held.items())
        lines = [f"Nothing went back to the driver: this process holds {holds}."]
    return lines


def _by_frameworks(given: Mapping[str, int]) -> str:
    """Return a line on what went back by the frameworks' own account, where the driver does not tell what is held."""
    if not given:
        return "What went back to the driver is not known: it does not tell what this process holds."
    gave = " and ".join(f"{name} gave {rounded(bytes_) if bytes_ else 'nothing'}" for name, bytes_ in given.items())
    return f"{gave} back to the driver, which does not tell what this process holds."


def _remaining(outcome: Outcome) -> str:
    names = ", ".join(f"`{name}`" for name in outcome.names)
    kept = "; ".join(called(one.name, one.others) for one in outcome.remaining[:_MOST_NAMES])
    more = len(outcome.remaining) - _MOST_NAMES
    total = rounded(sum(one.size for one in outcome.remaining))
    beside = f"; and {more} more" if more > 0 else ""
    return f"{names}: {total} of what was there is kept by other names: {kept}{beside}."
