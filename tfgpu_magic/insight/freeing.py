"""Lets go of memory: of names, what IPython keeps, garbage and caches; and tells what became free."""

from __future__ import annotations

import contextlib
import gc
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfgpu_magic.errors import PolicyError, Refused
from tfgpu_magic.frameworks import registry
from tfgpu_magic.frameworks.tensorflow import custom_gradients
from tfgpu_magic.ground import TENSORFLOW
from tfgpu_magic.ground.answer import Answer
from tfgpu_magic.ground.host import here
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.insight.objects import roots
from tfgpu_magic.insight.objects.search import Identity, figures, leading, reached_from
from tfgpu_magic.insight.objects.tensors import GAVE_UP, Tensors, called, still_there
from tfgpu_magic.machine.see import DRIVER_TIMEOUT, look
from tfgpu_magic.policy.parser import nearest
from tfgpu_magic.policy.process_state import Stage
from tfgpu_magic.policy.requests.growth import Growth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgpu_magic.insight.objects.accounts import Device

_MOST_NAMES = 5
_KEEPS = (
    "TensorFlow keeps what became free for its next tensors, until its process ends. What goes back earlier: what is "
    "not in use under `%tf_gpu growth --release`, and all that a cell takes which begins with `%%tf_gpu isolate`."
)
_CUT = "The names led to more objects than were looked through: what else keeps their memory may not be named here."


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
        gave_up: whether the deleted names led to more objects than were looked through.
        given: the bytes that each framework gave back to the driver, by its own account; only of those that can.
    """

    names: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    in_use: Mapping[Device, Change]
    held: Mapping[str, Change]
    remaining: Tensors = field(default_factory=Tensors)
    gave_up: bool = False
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
        if self.gave_up:
            lines.append(_CUT)
        if any(change.after for change in used.values()):
            lines.append("`%tf_gpu tensors` shows what holds the rest.")
        return lines


def free(*names: str) -> Freed:
    """Let go of the results and errors that alone lead to GPU memory, of names, of garbage and of caches.

    Args:
        names: names of the notebook, or of a program's main module, to delete.

    Returns:
        What became free in the frameworks' pools, and what went back to the driver, in bytes.

    Raises:
        PolicyError: one of the names is not there; nothing is let go of then.
    """
    unknown = [name for name in names if name not in roots.names()]
    if unknown:
        raise PolicyError(_no_such_name(unknown[0]))
    led_to, gave_up = reached_from([roots.names()[name] for name in names]) if names else (set[Identity](), False)
    in_use, held = figures(), look(DRIVER_TIMEOUT).held_by(os.getpid())
    roots.forget_names(names)
    dropped = _forget()
    custom_gradients.leave_to_graphs()
    gc.collect()
    given = _give_back()
    in_use_after, held_after = figures(), look(DRIVER_TIMEOUT).held_by(os.getpid())
    return Freed(
        names=tuple(dict.fromkeys(names)),
        in_use={device: Change(before=size, after=in_use_after.get(device, 0)) for device, size in in_use.items()},
        held={gpu: Change(before=size, after=held_after[gpu]) for gpu, size in held.items() if gpu in held_after},
        dropped=dropped,
        remaining=still_there(led_to) if led_to else Tensors(),
        gave_up=gave_up,
        given=given,
    )


def give_back() -> int:
    """Give GPU memory that is kept and not used back to the driver, while this process lives.

    TensorFlow gives back where `growth --release` is in force, and PyTorch what its cache keeps; JAX cannot. It waits
    until the GPUs have done their work. What something refers to stays, and no framework is started for it.

    Returns:
        The bytes that went back, of all GPUs together, by the driver's account or by PyTorch's.

    Raises:
        Refused: no framework that uses the GPUs can give memory back.
    """
    can = registry.freeing()
    keeping = [framework.name for framework in registry.FRAMEWORKS if framework.stage() is Stage.READY]
    if keeping and not can:
        keep = "keeps" if len(keeping) == 1 else "keep"
        raise Refused(
            f"{' and '.join(keeping)} {keep} the GPU memory that was taken until this {here()} ends. TensorFlow gives "
            f"back what it does not use where `{Growth(release=True)}` was said before its first operation.",
            verdict=None,
        )
    return sum(sum(framework.give_back().values()) for framework in can)


def _no_such_name(name: str) -> str:
    """Return what is wrong with a name; no variable of its frame, which an error keeps, has a value of the notebook."""
    near = nearest(name, roots.names())
    suggested = near if near.startswith(" Did you mean") else ""
    return f"`free {name}` cannot be done: there is no name {name!r} here to delete.{suggested}"


def _forget() -> tuple[str, ...]:
    """Let go of the results and errors that lead to arrays which no name keeps; return what people call them."""
    unwanted = leading([*(value for _, value in roots.results()), *roots.errors()])
    dropped = sorted(name for name, value in roots.results() if name and id(value) in unwanted)
    if any(id(error) in unwanted for error in roots.errors()):
        roots.forget_errors()
        dropped.append("the last error")
    roots.forget_results(unwanted)
    return tuple(dropped)


def _give_back() -> dict[str, int]:
    """Have each framework that can give memory back to the driver; return the bytes by its name, 0 where it fails."""
    given: dict[str, int] = {}
    for framework in registry.freeing():
        given[framework.name] = 0
        with contextlib.suppress(Exception):  # their errors have no common root; the figures tell what came of it
            given[framework.name] = sum(framework.give_back().values())
    return given


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
