"""The ways out of a lack of GPU memory, as `%tf_gpu why` shows them: lines to paste, each with a remark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tfgpu_magic.model import phrases
from tfgpu_magic.model.report import TENSORFLOW
from tfgpu_magic.policy.flags import RESTART
from tfgpu_magic.units import rounded

if TYPE_CHECKING:
    from tfgpu_magic.insight.why.explanation import Explanation, Way
    from tfgpu_magic.model.rows import ProcessRow

TRIED = "What would help, tried with the GPUs as they are:"
NOTHING = "Nothing was found that would help with the GPUs as they are, but this:"

LONGEST = 40
"""Characters of a name."""


def lead(case: Explanation) -> str:
    """Return the sentence above the ways."""
    return TRIED if any(way.kind != "smaller" for way in case.ways) else NOTHING


def lines(case: Explanation) -> Iterator[tuple[str, str]]:
    """Give each way as a line to paste and what is to be known of it; one without a line is a sentence."""
    for way in case.ways:
        yield from _WAYS[way.kind](case, way)


def here(case: Explanation) -> str:
    """Return what people call the process."""
    return "notebook" if case.host == "kernel" else case.host


def owner(case: Explanation, row: ProcessRow) -> str:
    """Return whose a process is."""
    if row.who != "this":
        return phrases.owner(row, case.seen, longest=LONGEST)
    name = phrases.owner(replace(row, unused=None), case.seen, longest=LONGEST)  # its cell has just asked for memory
    return name.replace("this notebook", f"this {here(case)}", 1)


def shape(sizes: tuple[int, ...]) -> str:
    """Write a shape: ``[2, 3]``."""
    return f"[{', '.join(map(str, sizes))}]"


def _free(case: Explanation, way: Way) -> Iterator[tuple[str, str]]:
    text = f"lets go of {rounded(way.size)} that only IPython keeps; then run the cell again"
    yield f"%{_magic(case)} {way.words}", text


def _isolate(case: Explanation, way: Way) -> Iterator[tuple[str, str]]:
    if case.host == "program":
        yield f'@tfgpu_magic.isolated(policy="{way.words}")', "for one function, in a process of its own"
        return
    keeps = "" if case.call else f"; this {here(case)} keeps what it holds"
    text = f"above the cell: it runs in a process of its own, whose names go unless `-o NAME` brings them back{keeps}"
    yield f"%%{_magic(case)} isolate {way.words}", text


def _restart(case: Explanation, way: Way) -> Iterator[tuple[str, str]]:
    if case.host == "program":
        yield _apply(case, way), f"before {case.shortage.framework}'s first operation, when it is started again"
    elif case.host == "session":
        yield f"%{_magic(case)} {way.words}", "first, when IPython is started again (variables are lost)"
    else:
        yield f"%{_magic(case)} {way.words} {RESTART}", "then run the cell again (variables are lost)"


def _park(case: Explanation, way: Way) -> Iterator[tuple[str, str]]:
    if way.row is None:
        return
    then = "; then:" if way.words else "; then run the cell again"
    about = f"{owner(case, way.row)}, which holds {rounded(way.row.held)} and comes back with its next cell"
    title = way.row.notebook.title if way.row.notebook else ""
    if case.host == "program":
        yield "", f"Park {about}{then}"
    else:
        told = title and phrases.plain(title, longest=LONGEST) == title
        name = title if told else way.row.pid  # a title that is cut would not be found
        yield f"%tf_gpu park {name}", f"parks {about}{then}"
    if way.words:
        yield from _restart(case, way)


def _shut(case: Explanation, way: Way) -> Iterator[tuple[str, str]]:
    if way.row is None:
        return
    what = f"Shut down {owner(case, way.row)}, which holds {rounded(way.row.held)}"
    if not way.words:
        yield "", f"{what}, and run the cell again."
    else:
        yield "", f"{what}; then:"
        yield from _restart(case, way)


def _smaller(_: Explanation, way: Way) -> Iterator[tuple[str, str]]:
    yield "", "A smaller batch needs less." if way.size is None else f"A smaller batch: {rounded(way.size)} would fit."


_WAYS: dict[str, Callable[[Explanation, Way], Iterator[tuple[str, str]]]] = {
    "free": _free,
    "isolate": _isolate,
    "restart": _restart,
    "park": _park,
    "shut": _shut,
    "smaller": _smaller,
}


def _apply(case: Explanation, way: Way) -> str:
    for_all = "" if _magic(case) == "tf_gpu" else ', frameworks="all"'
    return f'tfgpu_magic.apply("{way.words}"{for_all})'


def _magic(case: Explanation) -> str:
    return "tf_gpu" if case.shortage.framework == TENSORFLOW else "gpu"
