"""The answer of `%tf_gpu free`: what became free in the frameworks' pools, and what went back to the driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfgpu_magic.insight.answers.tensors import GAVE_UP, Tensors, called
from tfgpu_magic.model.answer import Answer
from tfgpu_magic.model.report import TENSORFLOW
from tfgpu_magic.units import rounded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgpu_magic.insight.accounts import Device

_MOST_NAMES = 5
_KEEPS = (
    "TensorFlow keeps what became free for its next tensors, until its process ends. What goes back earlier: what is "
    "not in use under `%tf_gpu growth --release`, and all that a cell takes which begins with `%%tf_gpu isolate`."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A figure before and after.

    Attributes:
        before: bytes.
        after: bytes.
    """

    before: int
    after: int

    @property
    def freed(self) -> int:
        """Bytes that became free; none where others took more meanwhile."""
        return max(self.before - self.after, 0)


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Freed(Answer):
    """What became free.

    Attributes:
        names: the names that were deleted.
        dropped: the results that IPython kept and that alone led to GPU memory, and the last error if it did.
        in_use: what each framework has in use on each GPU.
        held: what the driver says that this process holds, by GPU as the driver numbers it; empty where it does not
            tell.
        remaining: arrays that the deleted names led to, and that something else keeps.
        given: the bytes that each framework gave back to the driver, by its own account; only of those that can.
    """

    names: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    in_use: Mapping[Device, Change]
    held: Mapping[str, Change]
    remaining: Tensors = field(default_factory=Tensors)
    given: Mapping[str, int] = field(default_factory=dict)

    @property
    def in_pools(self) -> int:
        """Bytes that became free in the frameworks' pools."""
        return sum(change.freed for change in self.in_use.values())

    @property
    def to_driver(self) -> int | None:
        """Bytes that went back to the driver; None where neither it nor a framework tells.

        They are the driver's own figure, or where it does not tell what this process holds, that of the frameworks.
        """
        if self.held:
            return sum(change.freed for change in self.held.values())
        return sum(self.given.values()) if self.given else None

    def _parts(self) -> list[str]:
        used = {device: change for device, change in self.in_use.items() if change.before or change.after}
        lines = [_in_pool(*one) for one in used.items()] or ["No framework has memory of a GPU in use here."]
        if self.dropped:
            more = len(self.dropped) - _MOST_NAMES
            beside = f" and {more} more" if more > 0 else ""
            lines.append(f"Dropped: {', '.join(self.dropped[:_MOST_NAMES])}{beside}.")
        if self.held:
            lines += _to_driver(self.held)
        elif used or any(self.given.values()):
            lines.append(_by_frameworks(self.given))
        kept = any(framework == TENSORFLOW and change.freed for (framework, _), change in used.items())
        if kept and TENSORFLOW not in self.given:
            lines.append(_KEEPS)
        if self.remaining.holdings:
            lines += [_remaining(self), *[GAVE_UP] * self.remaining.gave_up]
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


def _remaining(freed: Freed) -> str:
    names = ", ".join(f"`{name}`" for name in freed.names)
    remaining = freed.remaining.holdings
    kept = "; ".join(called(one.name, one.others) for one in remaining[:_MOST_NAMES])
    more = len(remaining) - _MOST_NAMES
    total = rounded(sum(one.size for one in remaining))
    beside = f"; and {more} more" if more > 0 else ""
    by = "kept by other names" if any(one.name.parts for one in remaining) else "still kept"
    return f"{names}: {total} of what was there is {by}: {kept}{beside}."
