"""Decides what helps against a lack of memory, and keeps what the planner shows to be possible; nothing is applied."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from tfgpu_magic.engine import engine
from tfgpu_magic.ground import TENSORFLOW
from tfgpu_magic.ground.rows import Notebook
from tfgpu_magic.ground.units import exact
from tfgpu_magic.insight.objects.names import NamedMemory, Scope
from tfgpu_magic.insight.why.explanation import LIBRARY_ROOM, Remedy
from tfgpu_magic.isolate import leasing
from tfgpu_magic.policy import fit, parser
from tfgpu_magic.policy.memory import LEAST_LIMIT, context_bytes, reserve_bytes, round_up, whole

if TYPE_CHECKING:
    from tfgpu_magic.ground.rows import ProcessRow
    from tfgpu_magic.ground.snapshot import Snapshot
    from tfgpu_magic.insight.objects.names import Name
    from tfgpu_magic.insight.why.explanation import Explanation
    from tfgpu_magic.policy.decide import Frameworks
    from tfgpu_magic.policy.fit import Device
    from tfgpu_magic.policy.plan import Plan

MOST = 3
"""How many are shown."""

_HEADROOM = (Fraction(3, 2), Fraction(11, 10))
"""How much more than is known to be needed is asked for, the first that can be had: the rest of the cell wants some."""

_RESULT = re.compile(r"Out\[(\d+)\]")


def remedies(case: Explanation, trial: Trial) -> tuple[Remedy, ...]:
    """Return what would help, the one that costs least first.

    Args:
        case: what is known.
        trial: tries them.
    """
    found = list(itertools.islice(_lines(case, trial), MOST))
    shape = case.shortage.shape
    no_batch = case.fixed or (shape is not None and (len(shape) < 2 or shape[0] < 2))
    more = len(found) < MOST and case.cause != "start" and not no_batch
    return (*found, _smaller(case)) if more else tuple(found)


def _lines(case: Explanation, trial: Trial) -> Iterator[Remedy]:
    """Give those that are lines to paste, and then what else can be done to others."""
    if kept := _kept(case):
        yield Remedy(kind="free", words="free", size=kept)
    if _workers_hold_it(case):  # what starts anew finds no more room while the same cell starts the same workers
        yield Remedy(kind="workers")
        return
    isolated = list(_isolated(case, trial))
    if case.sendable:
        yield from isolated
    if case.deletion is not None:
        yield case.deletion
    restart = None if case.call else next((one for one in _restarts(case) if trial.anew(*one)), None)
    if restart is not None:
        words, need = restart
        yield Remedy(kind="restart", words=words, size=need)
    # Where a restart is enough, nobody need be shut down for one.
    others = (one for one in _without(case, trial) if restart is None or not one.words)
    yield from itertools.islice(others, 1)
    if case.sendable is None:
        yield from isolated


def _isolated(case: Explanation, trial: Trial) -> Iterator[Remedy]:
    """Give an isolated cell with the words for which there is room, if there are any."""
    needs = _needs(case) if case.cause not in ("start", "size") else []
    tried = [("growth", need) for need, _ in needs]
    tried += [(f"pick --need {text}; growth", need) for need, text in needs]
    found = (Remedy(kind="isolate", words=words, size=need) for words, need in tried if trial.beside(words, need))
    yield from itertools.islice(found, 1)


def _workers_hold_it(case: Explanation) -> bool:
    """Tell whether there would have been room without the notebook's own worker processes."""
    if case.gpu is None or case.call or case.cause not in ("start", "gpu", "pool", "library"):
        return False
    held = sum(row.process.held or 0 for row in case.workers)
    return held > 0 and (case.gpu.free or 0) + held >= max(case.shortage.size or 0, LIBRARY_ROOM)


def _restarts(case: Explanation) -> Iterator[tuple[str, int]]:
    """Give the policies that may have room in a new process, with what they must have room for, the nearest first."""
    if case.cause == "start":
        yield "pick", LEAST_LIMIT
    elif case.cause == "library":  # which wants room beside the pool
        level = 0 if case.pool is None else case.pool.level
        is_tensorflow = case.shortage.framework == TENSORFLOW
        yield ("growth", level + LIBRARY_ROOM) if is_tensorflow else (f"limit {_text(level)}", level)
    else:
        memory = [(need, text, _memory(case, text)) for need, text in _needs(case)]
        if case.cause != "size":
            yield from ((words, need) for need, _, words in memory)
        if len(case.parts) < 2:
            yield from ((f"pick --need {text}; {words}", need) for need, text, words in memory)


def _memory(case: Explanation, text: str) -> str:
    """Return the words for a pool that is to have so much."""
    pool = case.pool
    if pool is None:
        return f"limit {text}"
    if len(case.parts) > 1:
        sizes = [text if at == case.part else _text(part) for at, part in enumerate(case.parts)]
        return f"split {' '.join(sizes)}{_grow(case)}"
    in_pieces = case.cause == "pieces"  # of which CUDA's own pools have fewer, as TensorFlow's log says, too
    if (pool.grows or in_pieces) and not pool.capped and case.shortage.framework == TENSORFLOW:
        return "growth --release" if in_pieces or pool.releases else "growth"
    return f"limit {text}{_grow(case)}"


def _grow(case: Explanation) -> str:
    return " --grow" if case.pool is not None and case.pool.grows and case.shortage.framework == TENSORFLOW else ""


def _without(case: Explanation, trial: Trial) -> Iterator[Remedy]:
    """Give what would help once another notebook of mine is shut down, an idle and large one first."""
    mine = [row for row in case.processes if row.owner.who == "mine" and row.process.held and not row.owner.call]
    mine.sort(key=lambda row: ((row.owner.notebook or Notebook()).state != "idle", -(row.process.held or 0)))
    pool, size = case.pool, case.shortage.size or 0
    grows = case.cause == "gpu" and pool is not None and pool.grows
    fits = pool is not None and (pool.limit is None or pool.level + size <= pool.limit)
    for row in mine[:MOST]:
        if grows and fits and case.gpu is not None and (case.gpu.free or 0) + (row.process.held or 0) >= size:
            yield Remedy(kind="shut", row=row)
        elif case.call:
            continue
        else:
            yield from (
                Remedy(kind="shut", row=row, words=words, size=need)
                for words, need in _restarts(case)
                if trial.anew(words, need, without=row)
            )


def _kept(case: Explanation) -> int:
    """Return the bytes that IPython alone keeps, if these would have been enough; else 0."""
    pool, size = case.pool, case.shortage.size
    if pool is None or size is None:
        return 0
    here = (one for one in case.biggest if (one.framework, one.device) == (pool.framework, pool.name))
    results = [one for one in here if _is_a_result(one, case.cell)]
    kept, single = [one.size for one in results], [one.size for one in results if one.count == 1]
    if case.cause in ("limit", "pool") and pool.limit is not None:
        enough = pool.level - sum(kept) + size <= pool.limit
    else:  # the pool cannot grow, or its free memory is in pieces: one that is large enough has to come free
        enough = case.cause in ("gpu", "pieces") and max(single, default=0) >= size
    return sum(kept) if enough else 0


def _is_a_result(holding: NamedMemory, cell: int | None) -> bool:
    """Tell whether only IPython keeps an array, as the result of another cell.

    What the last error keeps does not count: once it is let go of, the same cell makes it again.
    """
    return all(_gives_a_result(name, cell) for name in (holding.name, *holding.others))


def _gives_a_result(name: Name, cell: int | None) -> bool:
    if name.scopes:
        return name.scopes == (Scope("result"),)
    found = _RESULT.fullmatch(name.parts[0]) if name.parts else None
    return found is not None and int(found[1]) != cell


def _needs(case: Explanation) -> list[tuple[int, str]]:
    """Return sizes of a pool that would do, each with how it is written, the more generous first."""
    level = 0 if case.pool is None else case.pool.level
    limit = 0 if case.pool is None else case.pool.limit or 0
    if case.pool is not None and case.cause == "pieces":
        level = max(level, case.pool.peak)  # what was in use then has left the pieces, and may do so again
    known = level + case.shortage.size if case.shortage.size is not None else max(limit, level + LIBRARY_ROOM)
    sizes = (round_up(math.ceil(known * factor)) for factor in _HEADROOM)
    return [(whole(size), _text(size)) for size in sizes]


def _text(size: int) -> str:
    return exact(round_up(size))


def _smaller(case: Explanation) -> Remedy:
    """Return how much would fit, as far as that is known."""
    pool, size = case.pool, case.shortage.size
    if size is None or pool is None or pool.limit is None or case.cause not in ("limit", "pool", "size"):
        return Remedy(kind="smaller")
    room = pool.limit - pool.level
    return Remedy(kind="smaller", size=room if 0 < room < size else None)


class Trial:
    """A trial by the planner, on the GPUs as they were seen: nothing is applied, and no framework is asked.

    Args:
        snapshot: the GPUs.
        framework: the name of the framework that had no memory.
        gpu: the UUID of the GPU that had none; None where that is not known.
    """

    def __init__(self, snapshot: Snapshot, framework: str, gpu: str | None) -> None:
        self._snapshot, self._framework, self._gpu = snapshot, framework, gpu

    def anew(self, words: str, need: int, *, without: ProcessRow | None = None) -> bool:
        """Tell whether a new process would have so much in one pool with these words.

        Args:
            words: a policy.
            need: bytes.
            without: a process whose memory would be free.
        """
        snapshot = self._snapshot
        if without is not None:
            pid = without.process.pid
            snapshot = snapshot.without({pid}, snapshot.held_by(pid))
        return self._has_room(lambda: engine.foresee(words, self._asked, see=lambda: snapshot), need)

    def beside(self, words: str, need: int) -> bool:
        """Tell whether an isolated cell would have so much in one pool with these words, beside this process.

        It sees every GPU that this process sees, and uses the one that this process used.
        """
        try:
            policy = parser.parse(words)
            tried = (
                partial(leasing.candidates, here, policy, self._snapshot)
                for here in leasing.nearest_first(self._snapshot)
            )
            devices = leasing.first(tried)
        except Exception:  # as below
            return False
        here = [device for device in devices if device.gpu.uuid == self._gpu] or list(devices[:1])
        grows = any(request.grows for request in policy.memory)
        return (
            bool(here)
            and not fit.problems(here)
            and not fit.crowding(here, grows=grows)
            and self._room(here[0]) >= need
        )

    @property
    def _asked(self) -> Frameworks:
        return "tensorflow" if self._framework == TENSORFLOW else "all"

    def _has_room(self, make: Callable[[], Plan], need: int) -> bool:
        try:
            plan = make()
        except Exception:  # refused; or whatever else: what cannot be tried is not advised
            return False
        if fit.problems(plan.devices) or fit.crowding(plan.devices, grows=plan.grows):
            return False
        used = [device for device in plan.devices if device.gpu.uuid == self._gpu] or list(plan.devices)
        limits = {part.framework: part.limits for part in plan.parts or ()}.get(self._framework, {})
        return any(limits.get(str(device.gpu.uuid), self._room(device)) >= need for device in used)

    def _room(self, device: Device) -> int:
        """Return the bytes that the largest pool on a GPU could have."""
        gpu = device.gpu
        if device.limits:
            return max(device.limits)
        if gpu.free is None or gpu.total is None:
            return 0
        room = gpu.free - context_bytes(gpu.total)
        return max(0, room - (reserve_bytes(room, gpu.capability) if self._framework == TENSORFLOW else 0))
