"""Decides what helps against a lack of memory. `decide` checks each remedy, and nothing is applied."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from tfgpu_magic.engine import engine
from tfgpu_magic.ground import TENSORFLOW
from tfgpu_magic.ground.message import Line, msg
from tfgpu_magic.ground.rows import Notebook
from tfgpu_magic.ground.units import exact, rounded
from tfgpu_magic.insight.objects.names import NamedMemory
from tfgpu_magic.insight.why.explanation import LIBRARY_ROOM, Remedy
from tfgpu_magic.policy import fit, parser
from tfgpu_magic.policy.decide import decide
from tfgpu_magic.policy.memory import LEAST_LIMIT, context_bytes, reserve_bytes, round_up, whole

if TYPE_CHECKING:
    from tfgpu_magic.ground.rows import ProcessRow
    from tfgpu_magic.ground.snapshot import Snapshot
    from tfgpu_magic.insight.why.explanation import Explanation
    from tfgpu_magic.policy.decide import Frameworks
    from tfgpu_magic.policy.fit import Device

MOST = 3
"""How many are shown."""

_HEADROOM = (Fraction(3, 2), Fraction(11, 10))
"""How much more than is known to be needed is asked for, the first that can be had: the rest of the cell wants some."""


def remedies(case: Explanation, trial: Trial) -> tuple[Remedy, ...]:
    """Return what would help, the one that costs least first.

    Args:
        case: what is known.
        trial: checks them.
    """
    found = list(itertools.islice(_offer(case, trial), MOST))
    shape = case.shortage.shape
    no_batch = case.fixed or (shape is not None and (len(shape) < 2 or shape[0] < 2))
    if len(found) < MOST and case.cause != "start" and not no_batch:
        found.append(smaller(_fitting_size(case)))
    if case.biggest and case.host != "program":
        found.append(Remedy("other", ((Line("tensors"), msg("shows all that holds memory")),)))
    return tuple(found)


def _offer(case: Explanation, trial: Trial) -> Iterator[Remedy]:
    """Yield those that are lines to paste, and then what else can be done to others."""
    if kept := _bytes_of_results(case):
        yield free("free", kept)
    leaks = case.pool is not None and any(2 * one.size > case.pool.level for one in case.deletion)
    yield from case.deletion * leaks  # what else helps hides it
    if _workers_hold_it(case):  # what starts anew finds no more room while the same cell starts the same workers
        yield workers(case)
        return
    isolated = list(_isolations(case, trial))
    if case.sendable:
        yield from isolated
    yield from case.deletion * (not leaks)
    words = None if case.call else next((words for words, need in _restarts(case) if trial.anew(words, need)), None)
    if words is not None:
        yield restart(case, words)
    # If a restart is enough, nobody need be shut down for one.
    others = (one for one in _shutdowns(case, trial) if words is None or not one.words)
    yield from itertools.islice(others, 1)
    if case.sendable is None:
        yield from isolated
    if words is None and not isolated:  # there is no room now
        yield from _waits(case, trial)


def free(words: str, size: int, anew: str = "") -> Remedy:
    """Return the deletion of names, or of what only IPython keeps, and `anew`, a name that the cell needs again."""
    only = " that only IPython keeps" * (words == "free")
    again = f"define `{anew}` again, and " if anew else ""
    text = msg("frees {size}{only}; then {again}run the cell again", size=rounded(size), only=only, again=again)
    return Remedy("free", ((Line(words), text),), words, size)


def isolate(case: Explanation, words: str, *, waits: bool = False) -> Remedy:
    """Return that the cell, or a function of a program, is run in a process of its own; if it `waits`, for room."""
    if case.host == "program":
        code = msg('@tfgpu_magic.isolated(policy="{words}")', words=words)
        return Remedy("isolate", ((code, msg("for one function, in a process of its own")),), words)
    text = "above the cell: it runs in a process of its own, whose names go unless `-o NAME` brings them back"
    text += "" if case.call else "; this {here} keeps what it holds"
    text += ". This is possible if the cell's variables can be sent to another process" * (case.sendable is None)
    return Remedy("isolate", ((Line(f"isolate {words}", "above", waits=waits), msg(text, here=case.here)),), words)


def restart(case: Explanation, words: str, *, waits: bool = False) -> Remedy:
    """Return that the process is started again with these words; if it `waits`, when there is room."""
    if case.host == "program":
        for_all = ("" if case.shortage.framework == TENSORFLOW else ', frameworks="all"') + ', wait="30m"' * waits
        code = msg('tfgpu_magic.apply("{words}"{for_all})', words=words, for_all=for_all)
        first = msg("before {name}'s first operation, when it is started again", name=case.shortage.framework)
        return Remedy("restart", ((code, first),), words)
    session = case.host == "session"
    then = "first, when IPython is started again" if session else "then run the cell again"
    text = msg("{then} (variables are lost){waits}", waits=". The line waits for room" * waits, then=then)
    return Remedy("restart", ((Line(words, restarts=not session, waits=waits), text),), words)


def shut(case: Explanation, row: ProcessRow, words: str = "") -> Remedy:
    """Return that another notebook is shut down, and then, if there are words, the process is started again."""
    then = "; then:" if words else ", and run the cell again."
    facts = {"owner": case.owner(row), "held": rounded(row.process.held)}
    text = msg("Shut down {owner}, which holds {held}{then}", then=then, **facts)
    return Remedy("shut", ((None, text), *(restart(case, words).rows if words else ())), words)


def smaller(size: int | None = None) -> Remedy:
    """Return that a smaller batch is computed, of so many bytes as far as that is known."""
    fits = msg("A smaller batch: {size} would fit.", size=rounded(size))
    return Remedy("smaller", ((None, msg("A smaller batch needs less.") if size is None else fits),))


def workers(case: Explanation) -> Remedy:
    """Return that the notebook's own worker processes are limited."""
    text = msg(
        "{held} of {gpu} are held by this {here}'s own worker processes, which no policy limits. Have each worker call "
        '`tfgpu_magic.apply("limit 25%")` before it computes, or start the workers by `tfgpu_magic.IsolatedExecutor` '
        'or `!tfgpu run "limit 25%" -- PROGRAM`.',
        held=rounded(sum(row.process.held or 0 for row in case.workers)),
        gpu=case.gpu_name,
        here=case.here,
    )
    return Remedy("workers", ((None, text),))


def _isolations(case: Explanation, trial: Trial) -> Iterator[Remedy]:
    """Yield an isolated cell with the words for which there is room, if there are any."""
    needs = _needed_sizes(case) if case.cause not in ("start", "size") else []
    tried = [("growth", need) for need, _ in needs]
    tried += [(f"pick --need {text}; growth", need) for need, text in needs]
    yield from itertools.islice((isolate(case, words) for words, need in tried if trial.beside(words, need)), 1)


def _waits(case: Explanation, trial: Trial) -> Iterator[Remedy]:
    """Yield what has room when other processes have given back what they hold."""
    grows = case.cause == "gpu" and case.pool is not None and case.pool.grows and not case.call
    make = isolate if case.call or (grows and case.sendable) else restart
    tried = (words for words, need in _restarts(case) if words.startswith("pick") and trial.alone(words, need))
    for words in itertools.islice(tried, 1):
        if grows:
            yield Remedy("other", ((None, msg("Run the cell again: other processes may have given memory back.")),))
        yield replace(make(case, words, waits=True), kind="other")


def _workers_hold_it(case: Explanation) -> bool:
    """Return whether there would have been room without the notebook's own worker processes."""
    if case.gpu is None or case.call or case.cause not in ("start", "gpu", "pool", "library"):
        return False
    held = sum(row.process.held or 0 for row in case.workers)
    return held > 0 and (case.gpu.free or 0) + held >= max(case.shortage.size or 0, LIBRARY_ROOM)


def _restarts(case: Explanation) -> Iterator[tuple[str, int]]:
    """Yield policies that may have room in a new process, with what they must have room for, the nearest first."""
    if case.cause == "start":
        yield "pick", LEAST_LIMIT
    elif case.cause == "library":  # which wants room beside the pool
        level = 0 if case.pool is None else case.pool.level
        is_tensorflow = case.shortage.framework == TENSORFLOW
        yield ("growth", level + LIBRARY_ROOM) if is_tensorflow else (f"limit {_text(level)}", level)
    else:
        memory = [(need, text, _memory(case, text)) for need, text in _needed_sizes(case)]
        if case.cause != "size":
            yield from ((words, need) for need, _, words in memory)
        if len(case.parts) < 2:
            yield from ((f"pick --need {text}; {words}", need) for need, text, words in memory)


def _memory(case: Explanation, text: str) -> str:
    """Return the words for a pool that is to have so much."""
    pool, is_tensorflow = case.pool, case.shortage.framework == TENSORFLOW
    if pool is None:
        return f"limit {text}"
    grow = " --grow" * (pool.grows and is_tensorflow)
    if len(case.parts) > 1:
        sizes = [text if at == case.part else _text(part) for at, part in enumerate(case.parts)]
        return f"split {' '.join(sizes)}{grow}"
    in_pieces = case.cause == "pieces"  # of which CUDA's own pools have fewer, as TensorFlow's log says, too
    if (pool.grows or in_pieces) and not pool.capped and is_tensorflow:
        return "growth --release" if in_pieces or pool.releases else "growth"
    return f"limit {text}{grow}"


def _shutdowns(case: Explanation, trial: Trial) -> Iterator[Remedy]:
    """Yield what would help once another notebook of mine is shut down, an idle and large one first."""
    mine = [row for row in case.processes if row.owner.who == "mine" and row.process.held and not row.owner.call]
    mine.sort(key=lambda row: ((row.owner.notebook or Notebook()).state != "idle", -(row.process.held or 0)))
    pool, size = case.pool, case.shortage.size or 0
    grows = case.cause == "gpu" and pool is not None and pool.grows
    fits = pool is not None and (pool.limit is None or pool.level + size <= pool.limit)
    for row in mine[:MOST]:
        if grows and fits and case.gpu is not None and (case.gpu.free or 0) + (row.process.held or 0) >= size:
            yield shut(case, row)
        elif not case.call:
            open_ = (words for words, need in _restarts(case) if trial.anew(words, need, without=row))
            yield from (shut(case, row, words) for words in open_)


def _bytes_of_results(case: Explanation) -> int:
    """Return the bytes that IPython alone keeps if freeing them would have been enough, otherwise 0."""
    pool = case.pool
    if pool is None:
        return 0
    here = (one for one in case.biggest if (one.framework, one.device) == (pool.framework, pool.name))
    results = [one for one in here if _is_a_result(one, case.cell)]
    kept = sum(one.size for one in results)
    return kept * is_enough(case, kept, max((one.size for one in results if one.count == 1), default=0))


def is_enough(case: Explanation, freed: int, piece: int = 0) -> bool:
    """Return whether it would have been enough to free so many bytes of the pool, with a piece of so many."""
    pool, size = case.pool, case.shortage.size
    if pool is None or not freed or case.cause not in ("limit", "pool", "gpu", "pieces"):
        return False
    if case.cause in ("limit", "pool") and pool.limit is not None and size is not None:
        return pool.level - freed + size <= pool.limit
    # The pool cannot grow, or its free memory is in pieces: a large one comes free, or so much that one is likely.
    return (size is not None and piece >= size) or (2 * freed > pool.level and freed >= (size or 0))


def _is_a_result(holding: NamedMemory, cell: int | None) -> bool:
    """Return whether only IPython keeps an array, as the result of another cell.

    What the last error keeps does not count: once it is dropped, the same cell makes it again.
    """
    names = (holding.name, *holding.others)
    return all(name.root == "result" and name.parts[:1] != (f"Out[{cell}]",) for name in names)


def _needed_sizes(case: Explanation) -> list[tuple[int, str]]:
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


def _fitting_size(case: Explanation) -> int | None:
    """Return how much would fit, or None if that is not known."""
    pool, size = case.pool, case.shortage.size
    if size is None or pool is None or pool.limit is None or case.cause not in ("limit", "pool", "size"):
        return None
    room = pool.limit - pool.level
    return room if 0 < room < size else None


class Trial:
    """Checks by the planner, on the GPUs as they were seen: nothing is applied, and no framework is asked.

    Args:
        snapshot: the GPUs.
        framework: the name of the framework that had no memory.
        gpu: the UUID of the GPU that had none; None if that is not known.
    """

    def __init__(self, snapshot: Snapshot, framework: str, gpu: str | None) -> None:
        self._snapshot, self._framework, self._gpu = snapshot, framework, gpu

    def anew(self, words: str, need: int, *, without: ProcessRow | None = None) -> bool:
        """Return whether a new process would have so much in one pool with these words.

        Args:
            words: a policy.
            need: bytes.
            without: a process whose memory would be free.
        """
        snapshot = self._snapshot
        if without is not None:
            pid = without.process.pid
            snapshot = snapshot.without_processes({pid}, snapshot.held_by(pid))
        with contextlib.suppress(Exception):  # it is refused, or cannot be checked, and so is not advised
            frameworks: Frameworks = "tensorflow" if self._framework == TENSORFLOW else "all"
            plan = engine.foresee(words, frameworks, see=lambda: snapshot)
            limits = {part.framework: part.limits for part in plan.parts or ()}.get(self._framework, {})
            return self._has_room(plan.devices, need, limits, grows=plan.grows)
        return False

    def beside(self, words: str, need: int) -> bool:
        """Return whether an isolated cell would have so much in one pool with these words, beside this process.

        It sees every GPU that this process sees, and uses the one that this process used.
        """
        with contextlib.suppress(Exception):  # as above
            plan = decide(parser.parse(words), self._snapshot, engine.anew(self._snapshot), room=False)
            here = [device for device in plan.devices if device.gpu.uuid == self._gpu] or plan.devices[:1]
            return self._has_room(here, need, {}, grows=plan.grows)
        return False

    def alone(self, words: str, need: int) -> bool:
        """Return whether a process would have so much with these words if only this one held memory beside it."""
        own = self._snapshot.held_by(os.getpid())
        gpus = [gpu._replace(free=(gpu.usable or 0) - own.get(gpu.label, 0)) for gpu in self._snapshot.gpus]
        return Trial(self._snapshot._replace(gpus=tuple(gpus)), self._framework, self._gpu).beside(words, need)

    def _has_room(self, devices: Sequence[Device], need: int, limits: Mapping[str, int], *, grows: bool) -> bool:
        if fit.problems(devices) or fit.crowding(devices, grows=grows):
            return False
        used = [device for device in devices if device.gpu.uuid == self._gpu] or devices
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
