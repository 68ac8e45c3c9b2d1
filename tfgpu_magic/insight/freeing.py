"""Lets go of memory: of names, what IPython keeps, garbage and caches; and tells what became free."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfgpu_magic import frameworks
from tfgpu_magic.config.vocabulary import nearest
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.frameworks import custom_gradients
from tfgpu_magic.insight import shell
from tfgpu_magic.insight.accounts import Device
from tfgpu_magic.insight.names import Holding
from tfgpu_magic.insight.search import Identity, figures, reached_from
from tfgpu_magic.insight.tensors import still_there
from tfgpu_magic.monitor.look import LOOK_TIMEOUT, look


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became free.

    Attributes:
        names: the names that were deleted.
        in_use: what each framework has in use on each GPU.
        held: what the driver says that this process holds, by GPU as `nvidia-smi` numbers it; empty where it does not
            tell.
        remaining: arrays that the deleted names led to, and that something else keeps.
        given: the bytes that each framework gave back to the driver, by its own account; only of those that can.
    """

    names: tuple[str, ...]
    in_use: Mapping[Device, Change]
    held: Mapping[str, Change]
    remaining: tuple[Holding, ...] = ()
    given: Mapping[str, int] = field(default_factory=dict)


def free(names: Sequence[str] = ()) -> Outcome:
    """Let go of memory.

    Args:
        names: names of the notebook to delete.

    Raises:
        PolicyError: one of them is not there; nothing is let go of then.
    """
    unknown = [name for name in names if name not in shell.names()]
    if unknown:
        raise PolicyError(_no_such_name(unknown[0]))
    led_to = _led_to(names)
    in_use, held = figures(), _held()
    shell.forget_names(names)
    shell.forget()
    custom_gradients.leave_to_graphs()
    gc.collect()
    given = _give_back()
    in_use_after, held_after = figures(), _held()
    return Outcome(
        names=tuple(dict.fromkeys(names)),
        in_use={device: Change(before=size, after=in_use_after.get(device, 0)) for device, size in in_use.items()},
        held={gpu: Change(before=size, after=held_after[gpu]) for gpu, size in held.items() if gpu in held_after},
        remaining=still_there(led_to) if led_to else (),
        given=given,
    )


def _no_such_name(name: str) -> str:
    """Return what is wrong with a name; no variable of its frame, which an error keeps, has a value of the notebook."""
    near = nearest(name, shell.names())
    suggested = near if near.startswith(" Did you mean") else ""
    return f"`free {name}` cannot be done: there is no name {name!r} here to delete.{suggested}"


def _led_to(names: Sequence[str]) -> set[Identity]:
    """Return the identities of the arrays to which names lead."""
    if not names:
        return set()
    known = shell.names()
    return reached_from([known[name] for name in names])


def _give_back() -> dict[str, int]:
    """Have each framework that can give memory back to the driver; return the bytes by its name, 0 where it fails."""
    given: dict[str, int] = {}
    for framework in frameworks.freeing():
        given[framework.name] = 0
        with contextlib.suppress(Exception):  # their errors have no common root; the figures tell what came of it
            given[framework.name] = sum(framework.give_back().values())
    return given


def _held() -> dict[str, int]:
    """Return what the driver says that this process holds of each GPU."""
    found: dict[str, int] = {}
    for process in look(LOOK_TIMEOUT).processes:
        if process.pid == os.getpid() and process.held is not None:
            found[process.gpu] = found.get(process.gpu, 0) + process.held
    return found
