"""The result of `%tf_gpu why`: why a GPU ran out of memory and what would help, as text and as HTML."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfgpu_magic.config.flags import RESTART
from tfgpu_magic.config.memory import context_bytes
from tfgpu_magic.monitor.report import TENSORFLOW
from tfgpu_magic.units import rounded
from tfgpu_magic.views import html, phrases

if TYPE_CHECKING:
    from tfgpu_magic.insight.why.explanation import Cause, Explanation, Way
    from tfgpu_magic.monitor.rows import ProcessRow

NONE = "Nothing has run out of GPU memory here since tfgpu_magic was loaded."
TRIED = "What would help, tried with the GPUs as they are:"
NOTHING = "Nothing was found that would help with the GPUs as they are, but this:"

_LONGEST = 40  # characters of a name
_MOST_PROCESSES = 5


@dataclass(frozen=True, slots=True, repr=False)
class Why:
    """Why a GPU ran out of memory; IPython shows it as HTML or as text, and `print` as text.

    Attributes:
        explanation: the figures; None where nothing ran out of memory.
    """

    explanation: Explanation | None

    def __repr__(self) -> str:
        case = self.explanation
        if case is None:
            return NONE
        facts = list(_facts(case))
        width = max((len(label) for label, _ in facts), default=0)
        lines = [f"  {label:<{width}}  {text}" for label, text in facts]
        ways = list(_ways(case))
        column = max((len(line) for line, _ in ways if line), default=0)
        shown = [f"  {line:<{column}}   {text}".rstrip() if line else f"  {text}" for line, text in ways]
        return "\n".join([_headline(case), *lines, *([_lead(case)] if ways else []), *shown, *_remarks(case)])

    def _repr_html_(self) -> str:
        case = self.explanation
        if case is None:
            return html.page(f"<p>{html.prose(NONE)}</p>")
        facts = [f"<strong>{html.prose(label)}</strong> {html.prose(text)}".strip() for label, text in _facts(case)]
        ways = [html.prose(f"`{line}` {text}" if line else text) for line, text in _ways(case)]
        lead = [f"<strong>{html.prose(_lead(case))}</strong>"] if ways else []
        parts = [f"<strong>{html.prose(_headline(case))}</strong>", "<br>".join(facts), "<br>".join([*lead, *ways])]
        remarks = "".join(map(html.remark, _remarks(case)))
        return html.page("".join(f"<p>{part}</p>" for part in parts if part) + remarks)


def _headline(case: Explanation) -> str:
    """Return why there was no memory, in one sentence or two."""
    where = "" if case.cell is None else f" (In [{case.cell}], {_clock(case.time)})"
    return f"Out of GPU memory{where}: {_CAUSES[case.cause](case)}"


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


def _limit(case: Explanation) -> str:
    pool = case.pool
    if pool is None:
        return _unknown(case)
    return f"{_asked(case)} did not fit into {_pool(case)}, which is limited to {rounded(pool.limit)}, {_filled(case)}."


def _full(case: Explanation) -> str:
    pool = case.pool
    if pool is None:
        return _unknown(case)
    return (
        f"{_asked(case)} did not fit into {_pool(case)}, {_filled(case)}. It may take {rounded(pool.limit)}, which was "
        f"free of {_gpu(case)} when {case.shortage.framework} started."
    )


def _pieces(case: Explanation) -> str:
    pool = case.pool
    if pool is None:
        return _unknown(case)
    free = (pool.taken or pool.limit or 0) - pool.level
    largest = (
        f"The largest piece is {rounded(pool.largest)}."
        if pool.largest is not None
        else f"{case.shortage.framework} does not tell how large the largest is."
    )
    return f"{rounded(max(free, 0))} of {_pool(case)} were free, but not {_asked(case)} in one piece. {largest}"


def _library(case: Explanation) -> str:
    return (
        f"{case.shortage.library or 'a library of CUDA'} found no room beside the memory that is taken already: "
        f"{_free(case)} of {_gpu(case)} are free."
    )


def _unknown(case: Explanation) -> str:
    return f"{_asked(case)} could not be had of {_gpu(case)}."


_CAUSES: dict[Cause, Callable[[Explanation], str]] = {
    "start": _start,
    "size": lambda case: f"{_asked(case)} is more than {_gpu(case)} has in all, {_total(case)}.",
    "limit": _limit,
    "pool": _full,
    "gpu": lambda case: f"{_asked(case)} could not be had: {_free(case)} of {_gpu(case)}'s {_total(case)} are free.",
    "pieces": _pieces,
    "library": _library,
    "unknown": _unknown,
}


def _facts(case: Explanation) -> Iterator[tuple[str, str]]:
    """Give what is known, each a label and a text; what belongs to the label before has none."""
    shortage, pool, gpu = case.shortage, case.pool, case.gpu
    if shortage.shape is not None:
        of = f"{shortage.dtype} " if shortage.dtype else ""
        on = f" on {shortage.device}" if shortage.device else ""
        yield "Asked", f"{rounded(shortage.size)}, a {of}tensor of shape {_shape(shortage.shape)}{on}"
    if pool is not None:
        limit = "" if pool.limit is None else f" of {rounded(pool.limit)}"
        took = "" if pool.taken is None else f", {rounded(pool.taken)} taken from the driver"
        text = f"{rounded(pool.in_use)} in use, peak {rounded(pool.peak)}{limit}{took}{', grows' * pool.grows}"
        yield "Pool", f"{pool.framework} {pool.name}: {text}"
    if gpu is not None:
        yield f"GPU {gpu.gpu}", f"{phrases.held(gpu)} held, {phrases.with_unit(gpu.free)} free"
        yield from (("", line) for line in _holders(case))
    for number, held in enumerate(case.biggest):
        name = phrases.plain(held.name, longest=_LONGEST) if held.name else "without a name"
        yield "" if number else "Largest", f"{rounded(held.size):>8}  {name} ({phrases.plain(held.what)})"
    if len(case.past) > 1:
        (begin, first), (end, last) = case.past[0], case.past[-1]
        highest = max(size for _, size in case.past)
        path = f"{rounded(first)} in use, then {rounded(last)}; {rounded(highest)} at most"
        yield "Before", f"{path}, in {phrases.seconds(max(end - begin, 0.0))}"


def _holders(case: Explanation) -> list[str]:
    rows = [f"{rounded(row.held):>8}  {_owner(case, row)}" for row in case.processes[:_MOST_PROCESSES]]
    more = len(case.processes) - _MOST_PROCESSES
    return [*rows, f"{'':>8}  and {more} more"] if more > 0 else rows


def _lead(case: Explanation) -> str:
    return TRIED if any(way.kind != "smaller" for way in case.ways) else NOTHING


def _ways(case: Explanation) -> Iterator[tuple[str, str]]:
    """Give the ways out, each a line to paste and what is to be known of it; one without a line is a sentence."""
    for way in case.ways:
        yield from _WAYS[way.kind](case, way)


def _free_names(case: Explanation, way: Way) -> Iterator[tuple[str, str]]:
    text = f"lets go of {rounded(way.size)} that only IPython keeps; then run the cell again"
    yield f"%{_magic(case)} {way.words}", text


def _now(case: Explanation, way: Way) -> Iterator[tuple[str, str]]:
    if case.host == "program":
        yield _apply(case, way), f"now, for {rounded(way.size)}"
    else:
        yield f"%{_magic(case)} {way.words}", "now; then run the cell again"


def _isolate(case: Explanation, way: Way) -> Iterator[tuple[str, str]]:
    if case.host == "program":
        gpus = f"gpus={way.gpus}, " if way.gpus else ""
        yield f'@tfgpu_magic.isolated({gpus}policy="{way.words}")', "for one function, in a process of its own"
        return
    gpus = f"--gpus {way.gpus} " if way.gpus else ""
    keeps = "" if case.call else f"; this {_here(case)} keeps what it holds"
    yield f"%%{_magic(case)} isolate {gpus}{way.words}", f"above the cell: it runs in a process of its own{keeps}"


def _restart(case: Explanation, way: Way) -> Iterator[tuple[str, str]]:
    if case.host == "program":
        yield _apply(case, way), f"before {case.shortage.framework}'s first operation, when it is started again"
    elif case.host == "session":
        yield f"%{_magic(case)} {way.words}", "first, when IPython is started again (variables are lost)"
    else:
        yield f"%{_magic(case)} {way.words} {RESTART}", "then run the cell again (variables are lost)"


def _shut(case: Explanation, way: Way) -> Iterator[tuple[str, str]]:
    if way.row is None:
        return
    what = f"Shut down {_owner(case, way.row)}, which holds {rounded(way.row.held)}"
    if not way.words:
        yield "", f"{what}, and run the cell again."
    else:
        yield "", f"{what}; then:"
        yield from _restart(case, way)


def _smaller(case: Explanation, way: Way) -> Iterator[tuple[str, str]]:
    del case
    if way.shape is not None:
        yield "", f"A smaller batch: shape {_shape(way.shape)}, {rounded(way.size)}, would fit."
    elif way.size is not None:
        yield "", f"A smaller batch: {rounded(way.size)} would fit."
    else:
        yield "", "A smaller batch needs less."


_WAYS: dict[str, Callable[[Explanation, Way], Iterator[tuple[str, str]]]] = {
    "free": _free_names,
    "now": _now,
    "isolate": _isolate,
    "restart": _restart,
    "shut": _shut,
    "smaller": _smaller,
}


def _apply(case: Explanation, way: Way) -> str:
    for_all = "" if _magic(case) == "tf_gpu" else ', frameworks="all"'
    return f'tfgpu_magic.apply("{way.words}"{for_all})'


def _remarks(case: Explanation) -> list[str]:
    return [phrases.SIMULATED] if case.simulated else []


def _asked(case: Explanation) -> str:
    return "What was asked for" if case.shortage.size is None else rounded(case.shortage.size)


def _filled(case: Explanation) -> str:
    """Return how full the pool was."""
    pool = case.pool
    if pool is None:
        return ""
    peak = f" now, and {rounded(pool.peak)} at its peak" if pool.peak > pool.in_use else ""
    return f"with {rounded(pool.in_use)} in use{peak}"


def _pool(case: Explanation) -> str:
    name = "" if case.pool is None or not case.pool.name else f" on {case.pool.name}"
    return f"{case.shortage.framework}'s pool{name}"


def _gpu(case: Explanation) -> str:
    return "the GPU" if case.gpu is None else f"GPU {case.gpu.gpu}"


def _free(case: Explanation) -> str:
    return rounded(None if case.gpu is None else case.gpu.free)


def _total(case: Explanation) -> str:
    return rounded(None if case.gpu is None else case.gpu.total)


def _owner(case: Explanation, row: ProcessRow) -> str:
    name = phrases.owner(row, case.seen, longest=_LONGEST)
    return name.replace("this notebook", f"this {_here(case)}", 1) if row.who == "this" else name


def _here(case: Explanation) -> str:
    return "notebook" if case.host == "kernel" else case.host


def _magic(case: Explanation) -> str:
    return "tf_gpu" if case.shortage.framework == TENSORFLOW else "gpu"


def _shape(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
