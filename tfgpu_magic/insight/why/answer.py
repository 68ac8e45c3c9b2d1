"""The answer of `%tf_gpu why`: why a GPU ran out of memory, and what would help."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tfgpu_magic.ground import TENSORFLOW, phrases
from tfgpu_magic.ground.answer import OFFERS, Answer, Part, facts, headline, to_paste
from tfgpu_magic.ground.message import FrontEnd, Line, Message, join, msg
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.insight.objects.tensors import GAVE_UP, kind_text, row_text
from tfgpu_magic.policy.memory import context_bytes

if TYPE_CHECKING:
    from tfgpu_magic.frameworks.pool import Pool
    from tfgpu_magic.insight.why.explanation import Cause, Explanation

NONE = msg(
    "No error about GPU memory was explained here since tfgpu_magic was loaded, and the last error, if any, is about "
    "something else. `tfgpu_magic.why(error)` explains an error that ended no cell, such as a thread's."
)
TRIED = msg("What would help, tried with the GPUs as they are:")
NOTHING = msg("Nothing was found that would help with the GPUs as they are, but this:")

_MOST_PROCESSES = 5

_Fact: TypeAlias = tuple[str, Message]
"""A size, empty if there is none, and what it is of."""


@dataclass(frozen=True, slots=True, repr=False)
class Why(Answer):
    """Why a GPU ran out of memory.

    Attributes:
        explanation: the figures; None if nothing ran out of memory.
        asked: whether a line has asked for it, so that the cell that ran out is not the one that shows it.
    """

    explanation: Explanation | None
    asked: bool = False

    def _parts(self) -> Iterable[Part | Message | str]:
        case = self.explanation
        if case is None:
            return [NONE]
        text = _front_end(case).sentence
        known = [(label, [(size, text(fact)) for size, fact in lines]) for label, lines in _facts(case)]
        rows = [(_write(case, line), text(remark)) for one in case.remedies for line, remark in one.rows]
        lead = TRIED if any(one.kind not in ("smaller", "workers", "other") for one in case.remedies) else NOTHING
        remarks = [GAVE_UP] * case.gave_up + [phrases.SIMULATED] * case.simulated
        return [headline(text(_reason(case))), facts(known), to_paste(text(lead), rows, self._runnable(case)), *remarks]

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        return {OFFERS: {}} if self.explanation is not None and self._runnable(self.explanation) else {}

    def _runnable(self, case: Explanation) -> dict[str, bool]:
        """Return the lines that a notebook can run. A line above a cell is one only if this stands below that cell."""
        kinds = {"line"} if self.asked or case.call else {"line", "above"}
        lines = [line for one in case.remedies for line, _ in one.rows if isinstance(line, Line) and line.kind in kinds]
        return {_write(case, line): line.restarts for line in lines} if case.host == "kernel" else {}


def _front_end(case: Explanation) -> FrontEnd:
    return FrontEnd("tf_gpu" if case.shortage.framework == TENSORFLOW else "gpu")


def _write(case: Explanation, line: Line | Message | None) -> str:
    """Return a line as it is typed, "" for None."""
    if isinstance(line, Line):
        return _front_end(case).line(line)
    return "" if line is None else _front_end(case).sentence(line)


_REASONS: dict[Cause, str] = {
    "start": "{name} could not start on {gpu}, of which {free} are free{needs}.{hangs}",
    "size": "{asked} is more than {gpu} has in all, {total}.",
    "limit": "{asked} did not fit into {pool}, which is limited to {limit}{by}, {filled}.{in_pieces}",
    "pool": "{asked} did not fit into {pool}, {filled}. It may take {limit} of what was free of {gpu} when {name} "
    "started.",
    "pieces": "{room} of {pool} were free, but not {asked} in one piece. {largest}",
    "gpu": "{asked} could not be had: {free} of {gpu}'s {total} are free{other}.",
    "library": "{library} {found} no room beside the memory that is taken already: {free} of {gpu} are free.",
    "unknown": "{asked} could not be had of {gpu}.",
}


def _reason(case: Explanation) -> Message:
    """Return why there was no memory, in one sentence or two."""
    at, name = time.strftime("%H:%M:%S", time.localtime(case.time)), case.shortage.framework
    where = "" if case.cell is None else f" (In [{case.cell}], {at})"
    total = None if case.gpu is None else case.gpu.total
    needs = "" if total is None else f", and needs about {rounded(context_bytes(total))} for CUDA's context"
    hangs = f" {name} may hang for good if it is used again in this {case.here}: leave it alone, and restart."
    most = next((row for row in case.processes[:1] if row.owner.who != "this"), None)  # the largest is first
    facts: dict[str, Any] = {
        "name": name,
        "gpu": case.gpu_name,
        "free": rounded(None if case.gpu is None else case.gpu.free),
        "total": "N/A" if case.gpu is None else f"{rounded(case.gpu.capacity)}{' (your limit)' * bool(case.gpu.limit)}",
        "asked": "What was asked for" if case.shortage.size is None else rounded(case.shortage.size),
        "library": case.shortage.library or "a library of CUDA",
        "found": "found" if case.shortage.certain else "may have found",
        "needs": needs,
        "hangs": hangs * (name == TENSORFLOW),
        "other": f", and {rounded(most.process.held)} are held by {case.owner(most)}" if most else "",
    }
    if case.pool is not None:
        facts |= _facts_of_pool(case, case.pool)
    cause = case.cause if case.pool is not None or case.cause not in ("limit", "pool", "pieces") else "unknown"
    return msg("Out of GPU memory{where}: {why}", where=where, why=msg(_REASONS[cause], **facts))


def _facts_of_pool(case: Explanation, pool: Pool) -> dict[str, str]:
    """Return what a reason says of the pool that had none."""
    name = case.shortage.framework
    on, size = f" on {pool.name}" if pool.name else "", case.shortage.size or math.inf
    again = f" now, and {rounded(pool.peak)} at its peak"
    level = f"{rounded(pool.level)} in use" if pool.reached is not None or pool.level == pool.in_use else ""
    largest = f"The largest piece is {rounded(pool.largest)}."
    pieces = " If it was not full again, its free memory was in pieces."
    return {
        "pool": f"{name}'s pool{on}",
        "limit": rounded(pool.limit),
        "by": case.limited_by,
        "filled": f"with {level or f'{rounded(pool.in_use)} in use{again}'}",
        "in_pieces": pieces * ((pool.limit or 0) - pool.in_use >= size),  # as it is now
        "room": rounded(pool.room),
        "largest": f"{name} does not tell how large the largest is." if pool.largest is None else largest,
    }


def _facts(case: Explanation) -> Iterator[tuple[str, list[_Fact]]]:
    """Yield what is known, each a label and lines."""
    shortage, pool, gpu = case.shortage, case.pool, case.gpu
    if shortage.shape is not None:
        of = f"{shortage.dtype} " if shortage.dtype else ""
        on = f" on {shortage.device}" if shortage.device else ""
        shape = f"[{', '.join(map(str, shortage.shape))}]"
        text = "{size}, a {of}tensor of shape {shape}{on}"
        yield "Asked", [("", msg(text, size=rounded(shortage.size), of=of, shape=shape, on=on))]
    if pool is not None:
        facts = {"in_use": rounded(pool.in_use), "peak": rounded(pool.peak), "limit": rounded(pool.limit)}
        text = "{framework} {name}: {in_use} in use, peak {peak}" + " of {limit}" * (pool.limit is not None)
        text += ", {taken} taken from the driver" * (pool.taken is not None) + ", grows" * pool.grows
        yield "Pool", [("", msg(text, framework=pool.framework, name=pool.name, taken=rounded(pool.taken), **facts))]
    if gpu is not None:
        state = msg("{held} held, {free} free", held=phrases.memory(gpu), free=phrases.with_unit(gpu.free))
        shown, more = case.processes[:_MOST_PROCESSES], len(case.processes) - _MOST_PROCESSES
        lines = [(rounded(row.process.held), join("", [case.owner(row)])) for row in shown]
        yield f"GPU {gpu.label}", [("", state), *lines, *[("", msg("and {more} more", more=more))] * (more > 0)]
    if case.biggest:
        named = [(one, msg("{name} ({kind})", name=row_text(one), kind=kind_text(one))) for one in case.biggest]
        yield "Largest", [(rounded(one.size), text) for one, text in named]
