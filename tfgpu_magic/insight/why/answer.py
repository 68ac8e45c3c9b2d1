"""The answer of `%tf_gpu why`: why a GPU ran out of memory, and what would help."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from tfgpu_magic.ground import TENSORFLOW, phrases
from tfgpu_magic.ground.answer import OFFERS, Answer, Part, facts, headline, to_paste
from tfgpu_magic.ground.message import FrontEnd, Line
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.insight.objects.tensors import GAVE_UP, kind, row_name
from tfgpu_magic.policy.memory import context_bytes

if TYPE_CHECKING:
    from tfgpu_magic.frameworks.pool import Pool
    from tfgpu_magic.ground.rows import ProcessRow
    from tfgpu_magic.insight.why.explanation import Cause, Explanation, Remedy

NONE = (
    "No error about GPU memory was explained here since tfgpu_magic was loaded, and the last error, if any, is about "
    "something else. `tfgpu_magic.why(error)` explains an error that ended no cell, such as a thread's."
)

_MOST_PROCESSES = 5

TRIED = "What would help, tried with the GPUs as they are:"
NOTHING = "Nothing was found that would help with the GPUs as they are, but this:"

_LONGEST = 40
"""Characters of a name."""

_Line: TypeAlias = tuple[str, str]
"""A size, empty where there is none, and a text."""

_Remedy: TypeAlias = tuple[Line | str, str]
"""A line to paste, of IPython or of Python, and what is to be known of it; a sentence alone, if the line is empty."""


@dataclass(frozen=True, slots=True, repr=False)
class Why(Answer):
    """Why a GPU ran out of memory.

    Attributes:
        explanation: the figures; None where nothing ran out of memory.
        asked: whether a line has asked for it, so that the cell that ran out is not the one that shows it.
    """

    explanation: Explanation | None
    asked: bool = False

    def _parts(self) -> Iterable[Part | str]:
        case = self.explanation
        if case is None:
            return [NONE]
        remarks = [GAVE_UP] * case.gave_up + [phrases.SIMULATED] * case.simulated
        return [
            headline(_headline(case)),
            facts(list(_facts(case))),
            to_paste(_lead(case), [(_typed(case, line), text) for line, text in _remedies(case)], self._runs(case)),
            *remarks,
        ]

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        return {OFFERS: {}} if self.explanation is not None and self._runs(self.explanation) else {}

    def _runs(self, case: Explanation) -> dict[str, bool]:
        """Return the lines that a notebook can run; one for above a cell only where that is the cell, and has none."""
        kinds = {"line"} if self.asked or case.call else {"line", "above"}
        lines = [line for line, _ in _remedies(case) if isinstance(line, Line) and line.kind in kinds]
        return {_typed(case, line): line.restarts for line in lines} if case.host == "kernel" else {}


def _typed(case: Explanation, line: Line | str) -> str:
    """Return a line as it is typed."""
    return FrontEnd(_magic(case)).line(line) if isinstance(line, Line) else line


def _headline(case: Explanation) -> str:
    """Return why there was no memory, in one sentence or two."""
    at = time.strftime("%H:%M:%S", time.localtime(case.time))
    where = "" if case.cell is None else f" (In [{case.cell}], {at})"
    of_pool, pool = _OF_A_POOL.get(case.cause), case.pool
    why = of_pool(case, pool) if of_pool and pool is not None else _CAUSES.get(case.cause, _unknown)(case)
    return f"Out of GPU memory{where}: {why}"


def _start(case: Explanation) -> str:
    name = case.shortage.framework
    then = (
        f" {name} may hang for good if it is used again in this {_here(case)}: leave it alone, and restart."
        if name == TENSORFLOW
        else ""
    )
    total = None if case.gpu is None else case.gpu.total
    needs = "" if total is None else f", and needs about {rounded(context_bytes(total))} for CUDA's context"
    return f"{name} could not start on {_gpu(case)}, of which {_free(case)} are free{needs}.{then}"


def _limit(case: Explanation, pool: Pool) -> str:
    limited = f"{_pool(case)}, which is limited to {rounded(pool.limit)}{case.limited_by}, {_filled(pool)}"
    room = (pool.limit or 0) - pool.in_use  # as it is now
    pieces = " If it was not full again, its free memory was in pieces." * (room >= (case.shortage.size or math.inf))
    return f"{_asked(case)} did not fit into {limited}.{pieces}"


def _full(case: Explanation, pool: Pool) -> str:
    return (
        f"{_asked(case)} did not fit into {_pool(case)}, {_filled(pool)}. It may take {rounded(pool.limit)} of what "
        f"was free of {_gpu(case)} when {case.shortage.framework} started."
    )


def _pieces(case: Explanation, pool: Pool) -> str:
    largest = (
        f"The largest piece is {rounded(pool.largest)}."
        if pool.largest is not None
        else f"{case.shortage.framework} does not tell how large the largest is."
    )
    return f"{rounded(pool.room)} of {_pool(case)} were free, but not {_asked(case)} in one piece. {largest}"


def _library(case: Explanation) -> str:
    found = "found" if case.shortage.certain else "may have found"
    return (
        f"{case.shortage.library or 'a library of CUDA'} {found} no room beside the memory that is taken already: "
        f"{_free(case)} of {_gpu(case)} are free."
    )


def _unknown(case: Explanation) -> str:
    return f"{_asked(case)} could not be had of {_gpu(case)}."


_CAUSES: dict[Cause, Callable[[Explanation], str]] = {
    "start": _start,
    "size": lambda case: f"{_asked(case)} is more than {_gpu(case)} has in all, {_total(case)}.",
    "gpu": lambda case: (
        f"{_asked(case)} could not be had: {_free(case)} of {_gpu(case)}'s {_total(case)} are free{_neighbour(case)}."
    ),
    "library": _library,
}
_OF_A_POOL: dict[Cause, Callable[[Explanation, Pool], str]] = {"limit": _limit, "pool": _full, "pieces": _pieces}


def _facts(case: Explanation) -> Iterator[tuple[str, list[_Line]]]:
    """Give what is known, each a label and lines."""
    shortage, pool, gpu = case.shortage, case.pool, case.gpu
    if shortage.shape is not None:
        of = f"{shortage.dtype} " if shortage.dtype else ""
        on = f" on {shortage.device}" if shortage.device else ""
        yield "Asked", [("", f"{rounded(shortage.size)}, a {of}tensor of shape {_shape(shortage.shape)}{on}")]
    if pool is not None:
        limit = "" if pool.limit is None else f" of {rounded(pool.limit)}"
        took = "" if pool.taken is None else f", {rounded(pool.taken)} taken from the driver"
        text = f"{rounded(pool.in_use)} in use, peak {rounded(pool.peak)}{limit}{took}{', grows' * pool.grows}"
        yield "Pool", [("", f"{pool.framework} {pool.name}: {text}")]
    if gpu is not None:
        state = f"{phrases.held(gpu)} held, {phrases.with_unit(gpu.free)} free"
        yield f"GPU {gpu.label}", [("", state), *_holders(case)]
    if case.biggest:
        largest = [(rounded(one.size), f"{row_name(one)} ({kind(one)})") for one in case.biggest]
        yield "Largest", [*largest, ("", "`%tf_gpu tensors` shows all.")] if case.host != "program" else largest


def _neighbour(case: Explanation) -> str:
    """Return who else holds most; nothing where this process holds more."""
    most = next(iter(case.processes), None)  # the largest is first
    if most is None or most.owner.who == "this":
        return ""
    return f", and {rounded(most.process.held)} are held by {_owner(case, most)}"


def _holders(case: Explanation) -> list[_Line]:
    rows = [(rounded(row.process.held), _owner(case, row)) for row in case.processes[:_MOST_PROCESSES]]
    more = len(case.processes) - _MOST_PROCESSES
    return [*rows, ("", f"and {more} more")] if more > 0 else rows


def _asked(case: Explanation) -> str:
    return "What was asked for" if case.shortage.size is None else rounded(case.shortage.size)


def _filled(pool: Pool) -> str:
    """Return how full a pool was."""
    if pool.reached is not None or pool.level == pool.in_use:
        return f"with {rounded(pool.level)} in use"
    return f"with {rounded(pool.in_use)} in use now, and {rounded(pool.peak)} at its peak"


def _pool(case: Explanation) -> str:
    name = "" if case.pool is None or not case.pool.name else f" on {case.pool.name}"
    return f"{case.shortage.framework}'s pool{name}"


def _gpu(case: Explanation) -> str:
    return "the GPU" if case.gpu is None else f"GPU {case.gpu.label}"


def _free(case: Explanation) -> str:
    return rounded(None if case.gpu is None else case.gpu.free)


def _total(case: Explanation) -> str:
    return "N/A" if case.gpu is None else f"{rounded(case.gpu.most)}{' (your limit)' * bool(case.gpu.limit)}"


def _lead(case: Explanation) -> str:
    """Return the sentence above the remedies."""
    return TRIED if any(remedy.kind not in ("smaller", "workers") for remedy in case.remedies) else NOTHING


def _remedies(case: Explanation) -> Iterator[_Remedy]:
    """Give each as a line to paste and what is to be known of it; one without a line is a sentence."""
    for remedy in case.remedies:
        yield from _REMEDIES[remedy.kind](case, remedy)


def _here(case: Explanation) -> str:
    """Return what people call the process."""
    return "notebook" if case.host == "kernel" else case.host


def _owner(case: Explanation, row: ProcessRow) -> str:
    """Return whose a process is; this one's cell has just asked for memory."""
    if row.owner.who == "this":
        row = replace(row, process=row.process._replace(unused=None))
    return phrases.owner(row, case.seen, longest=_LONGEST)


def _shape(sizes: tuple[int, ...]) -> str:
    """Write a shape: ``[2, 3]``."""
    return f"[{', '.join(map(str, sizes))}]"


def _let_go(_: Explanation, remedy: Remedy) -> Iterator[_Remedy]:
    what = f"{rounded(remedy.size)} that only IPython keeps" if remedy.words == "free" else rounded(remedy.size)
    anew = f"make {remedy.anew} anew, and " if remedy.anew else ""
    text = f"lets go of {what}; then {anew}run the cell again"
    yield Line(remedy.words), text


def _isolate(case: Explanation, remedy: Remedy) -> Iterator[_Remedy]:
    if case.host == "program":
        yield f'@tfgpu_magic.isolated(policy="{remedy.words}")', "for one function, in a process of its own"
        return
    keeps = "" if case.call else f"; this {_here(case)} keeps what it holds"
    if case.sendable is None:
        keeps += ". This is possible if the cell's variables can be sent to another process"
    text = f"above the cell: it runs in a process of its own, whose names go unless `-o NAME` brings them back{keeps}"
    yield Line(f"isolate {remedy.words}", "above"), text


def _restart(case: Explanation, remedy: Remedy) -> Iterator[_Remedy]:
    if case.host == "program":
        yield _apply(case, remedy), f"before {case.shortage.framework}'s first operation, when it is started again"
    elif case.host == "session":
        yield Line(remedy.words), "first, when IPython is started again (variables are lost)"
    else:
        yield Line(remedy.words, restarts=True), "then run the cell again (variables are lost)"


def _shut(case: Explanation, remedy: Remedy) -> Iterator[_Remedy]:
    if remedy.row is None:
        return
    what = f"Shut down {_owner(case, remedy.row)}, which holds {rounded(remedy.row.process.held)}"
    if not remedy.words:
        yield "", f"{what}, and run the cell again."
    else:
        yield "", f"{what}; then:"
        yield from _restart(case, remedy)


def _smaller(_: Explanation, remedy: Remedy) -> Iterator[_Remedy]:
    yield (
        "",
        "A smaller batch needs less." if remedy.size is None else f"A smaller batch: {rounded(remedy.size)} would fit.",
    )


def _workers(case: Explanation, _: Remedy) -> Iterator[_Remedy]:
    held = rounded(sum(row.process.held or 0 for row in case.workers))
    text = (
        f"{held} of {_gpu(case)} are held by this {_here(case)}'s own worker processes, which no policy limits. "
        'Have each worker call `tfgpu_magic.apply("limit 25%")` before it computes, or start the workers by '
        '`tfgpu_magic.IsolatedExecutor` or `!tfgpu run "limit 25%" -- PROGRAM`.'
    )
    yield "", text


_REMEDIES: dict[str, Callable[[Explanation, Remedy], Iterator[_Remedy]]] = {
    "free": _let_go,
    "isolate": _isolate,
    "restart": _restart,
    "shut": _shut,
    "smaller": _smaller,
    "workers": _workers,
}


def _apply(case: Explanation, remedy: Remedy) -> str:
    for_all = "" if _magic(case) == "tf_gpu" else ', frameworks="all"'
    return f'tfgpu_magic.apply("{remedy.words}"{for_all})'


def _magic(case: Explanation) -> str:
    return "tf_gpu" if case.shortage.framework == TENSORFLOW else "gpu"
