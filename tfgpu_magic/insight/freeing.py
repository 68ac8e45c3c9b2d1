"""Frees memory of names, of what IPython keeps, of garbage and caches, and reports what became free."""

from __future__ import annotations

import contextlib
import gc
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfgpu_magic.errors import PolicyError, Refused
from tfgpu_magic.frameworks import registry
from tfgpu_magic.frameworks.tensorflow import custom_gradients
from tfgpu_magic.ground import TENSORFLOW
from tfgpu_magic.ground.answer import Answer
from tfgpu_magic.ground.message import Line, Message, join, join_commas, msg
from tfgpu_magic.ground.process_kind import noun
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.insight.measuring import Measuring
from tfgpu_magic.insight.objects import roots
from tfgpu_magic.insight.objects.search import Identity, arrays_reached_from, ids_leading_to_arrays, search
from tfgpu_magic.insight.objects.tensors import GAVE_UP, Tensors, name_text
from tfgpu_magic.policy.parser import nearest
from tfgpu_magic.policy.process_state import Stage
from tfgpu_magic.policy.requests.growth import Growth

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfgpu_magic.insight.measurement import HeldChange, Measurement, PoolUse

_MOST_NAMES = 5
_KEEPS = msg(
    "TensorFlow keeps what became free for its next tensors, until its process ends. What goes back earlier: what is "
    "not in use under `{release}`, and all that a cell takes which begins with `{isolate}`.",
    release=Line("growth --release"),
    isolate=Line("isolate", "above"),
)
_CUT = msg(
    "The names led to more objects than were looked through: what else keeps their memory may not be named here."
)
_REST = msg("`{line}` shows what holds the rest.", line=Line("tensors"))
_UNUSED = msg("No framework has memory of a GPU in use here.")
_UNKNOWN = msg("What went back to the driver is not known: it does not tell what this process holds.")


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Freed(Answer):
    """What became free.

    Attributes:
        names: the names that were deleted.
        dropped: the results that IPython kept and that alone led to GPU memory, and the last error if it did.
        measured: what each framework had in use on each GPU, and what the driver says that this process held, before
            and after.
        remaining: arrays that the deleted names led to, and that something else keeps.
        gave_up: whether the deleted names led to more objects than were looked through.
        given: the bytes that each framework gave back to the driver, by its own account; only of those that can.
    """

    names: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    measured: Measurement
    remaining: Tensors = field(default_factory=Tensors)
    gave_up: bool = False
    given: Mapping[str, int] = field(default_factory=dict)

    @property
    def in_pools(self) -> int:
        """Bytes that became free in the frameworks' pools."""
        return sum(map(_given_back, self.measured.pools))

    @property
    def to_driver(self) -> int | None:
        """Bytes that went back to the driver, by its figure or else by the frameworks', or None if neither is known."""
        if self._held:
            return sum(map(_given_back, self._held))
        return sum(self.given.values()) if self.given else None

    @property
    def _held(self) -> list[HeldChange]:
        """The changes of what the driver gave, of each GPU of which it tells that."""
        return [gpu for gpu in self.measured.gpus if gpu.delta is not None]

    def _parts(self) -> list[Message]:
        used = [pool for pool in self.measured.pools if pool.before or pool.after]
        lines = [_pool_line(pool) for pool in used] or [_UNUSED]
        if self.dropped:
            more = len(self.dropped) - _MOST_NAMES
            beside = f" and {more} more" if more > 0 else ""
            lines.append(msg("Dropped: {names}{beside}.", names=join_commas(self.dropped[:_MOST_NAMES]), beside=beside))
        if self.names:
            text = "Deleted: {names}. Run the code that makes a deleted name before you use it again."
            lines.append(msg(text, names=join_commas(f"`{name}`" for name in self.names)))
        if self._held:
            lines += _driver_lines(self._held)
        elif used or any(self.given.values()):
            lines.append(_framework_line(self.given))
        kept = any(pool.framework == TENSORFLOW and _given_back(pool) for pool in used)
        if kept and TENSORFLOW not in self.given:
            lines.append(_KEEPS)
        if self.remaining.holdings:
            lines += [_remaining_line(self), *[GAVE_UP] * self.remaining.gave_up]
        lines += [_CUT] * self.gave_up
        return lines + [_REST] * any(pool.after for pool in used)


def free(*names: str) -> Freed:
    """Free what results and errors alone lead to, names, garbage and caches.

    Args:
        names: names of the notebook, or of a program's main module, to delete.

    Returns:
        What became free in the frameworks' pools, and what went back to the driver, in bytes.

    Raises:
        PolicyError: one of the names is not there; nothing is freed then.
    """
    unknown = [name for name in names if name not in roots.notebook_names()]
    if unknown:
        raise PolicyError(_no_such_name(unknown[0]))
    led_to, gave_up = (
        arrays_reached_from([roots.notebook_names()[name] for name in names]) if names else (set[Identity](), False)
    )
    with Measuring() as measuring:
        roots.delete_names(names)
        dropped = _drop_unnamed()
        custom_gradients.move_to_graphs()
        gc.collect()
        given = _give_back()
    return Freed(
        names=tuple(dict.fromkeys(names)),
        measured=measuring.result,
        dropped=dropped,
        remaining=_still_there(led_to) if led_to else Tensors(),
        gave_up=gave_up,
        given=given,
    )


def give_back() -> int:
    """Return GPU memory that is kept and not used to the driver, while this process lives.

    TensorFlow gives back where `growth --release` is in force, and PyTorch what its cache keeps; JAX cannot. It waits
    until the GPUs have done their work. What something refers to stays, and no framework is started for it.

    Returns:
        The bytes that went back, of all GPUs together, by the driver's account or by PyTorch's.

    Raises:
        Refused: no framework that uses the GPUs can give memory back.
    """
    can = registry.freeable()
    keeping = [framework.name for framework in registry.FRAMEWORKS if framework.stage() is Stage.READY]
    if keeping and not can:
        reason = msg(
            "{names} {keep} the GPU memory that was taken until this {here} ends. TensorFlow gives back what it does "
            "not use where `{policy}` was said before its first operation.",
            names=" and ".join(keeping),
            keep="keeps" if len(keeping) == 1 else "keep",
            here=noun(),
            policy=Growth(release=True),
        )
        raise Refused(reason, verdict=None)
    return sum(sum(framework.give_back().values()) for framework in can)


def _no_such_name(name: str) -> Message:
    """Return what is wrong with a name. An error keeps this frame, so no variable here has a value of the notebook."""
    near = nearest(name, roots.notebook_names())
    text = "`free {name}` cannot be done: there is no name {quoted} here to delete.{near}"
    return msg(text, name=name, quoted=repr(name), near=near if near.startswith(" Did you mean") else "")


def _still_there(identities: set[Identity]) -> Tensors:
    """Return those of certain arrays that something keeps, with their names."""
    found = search(only=identities)
    return Tensors(holdings=found.rows, gave_up=found.gave_up)


def _drop_unnamed() -> tuple[str, ...]:
    """Drop the results and errors that lead to arrays which no name keeps, and return what people call them."""
    unwanted = ids_leading_to_arrays([*(value for _, value in roots.kept_results()), *roots.kept_errors()])
    dropped = sorted(name for name, value in roots.kept_results() if name and id(value) in unwanted)
    if any(id(error) in unwanted for error in roots.kept_errors()):
        roots.drop_errors()
        dropped.append("the last error")
    roots.drop_results(unwanted)
    return tuple(dropped)


def _give_back() -> dict[str, int]:
    """Make each framework that can give memory back do so, and return the bytes by its name, 0 if it fails."""
    given: dict[str, int] = {}
    for framework in registry.freeable():
        given[framework.name] = 0
        with contextlib.suppress(Exception):  # their errors have no common root; the figures tell what came of it
            given[framework.name] = sum(framework.give_back().values())
    return given


def _given_back(change: PoolUse | HeldChange) -> int:
    """Return the bytes that became free, or 0 if others took more meanwhile."""
    return max(-(change.delta or 0), 0)


def _pool_line(pool: PoolUse) -> Message:
    left = "{after} are still in use" if pool.after else "nothing is in use any more"
    some, none = f"{{freed}} became free, and {left}.", "nothing became free, and {after} are in use."
    freed = _given_back(pool)
    facts = {"freed": rounded(freed), "after": rounded(pool.after)}
    return msg("{framework} on {gpu}: " + (some if freed else none), framework=pool.framework, gpu=pool.name, **facts)


def _driver_lines(held: Sequence[HeldChange]) -> list[Message]:
    """Return a line for each GPU that gave memory back to the driver, or if none did, one with what is held."""
    text = "{freed} of GPU {gpu} went back to the driver, and this process still holds {after}."
    lines = [
        msg(text, gpu=one.gpu, freed=rounded(_given_back(one)), after=rounded(one.after))
        for one in held
        if _given_back(one)
    ]
    holds = join_commas(f"{rounded(one.after)} of GPU {one.gpu}" for one in held)
    return lines or [msg("Nothing went back to the driver: this process holds {holds}.", holds=holds)]


def _framework_line(given: Mapping[str, int]) -> Message:
    """Return what went back by the frameworks' own account, for a driver that does not tell what is held."""
    if not given:
        return _UNKNOWN
    gave = [f"{name} gave {rounded(size) if size else 'nothing'}" for name, size in given.items()]
    return msg("{gave} back to the driver, which does not tell what this process holds.", gave=join(" and ", gave))


def _remaining_line(freed: Freed) -> Message:
    remaining = freed.remaining.holdings
    more = len(remaining) - _MOST_NAMES
    return msg(
        "{names}: {total} of what was there is {by}: {kept}{beside}.",
        names=join_commas(f"`{name}`" for name in freed.names),
        total=rounded(sum(one.size for one in remaining)),
        by="kept by other names" if any(one.name.parts for one in remaining) else "still kept",
        kept=join("; ", [name_text(one.name, one.others) for one in remaining[:_MOST_NAMES]]),
        beside=f"; and {more} more" if more > 0 else "",
    )
