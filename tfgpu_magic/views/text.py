"""Draws rows as aligned text for terminals and front ends without HTML. `monitor.rows` decides their content."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from tfgpu_magic.views import phrases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgpu_magic.monitor.rows import GpuRow, ProcessRow, Table

_PROCESS_COLUMNS = (">GPU", ">PID", ">Type", "<Owner", ">Held", "<Policy")


def render(table: Table, *, longest: int = 40, here: str = "notebook") -> str:
    """Return a table as text, without a line end after its last line.

    Args:
        table: the rows.
        longest: how many characters of a name are shown; longer ones are cut on the left.
        here: the kind of the viewing process.
    """
    if table.error:
        lines = [phrases.plain(table.error, longest=400)]
        lines += [phrases.TRY, "  " + phrases.TRY_COMMAND] if table.absent else []
        return "\n".join([*lines, *phrases.remarks(table)])
    own = phrases.of_kernel(table)
    gpus = [_gpu(row, none="-" if own else "") for row in table.gpus]
    # Beside a notebook's own policy, which stands with the GPUs, there is no room for all others.
    processes = [line for row in table.processes for line in _process(row, table.time, longest, policy=not own)]
    lines = columns((">GPU", "<Name", "<TF", ">Held", ">Free", f"<This {here}", "<Policy"), gpus)
    lines += columns(_PROCESS_COLUMNS, processes) if processes else phrases.no_holders(table)
    return "\n".join([*lines, *phrases.remarks(table)])


def _gpu(row: GpuRow, *, none: str) -> list[str]:
    start = [row.gpu, phrases.name(row), row.logical or none]
    if row.error and row.used is None:
        return [*start, f"N/A: {phrases.plain(row.error, longest=100)}."]
    return [*start, phrases.held(row), phrases.with_unit(row.free), phrases.use(row), phrases.plain(row.policy)]


def _process(row: ProcessRow, now: float, longest: int, *, policy: bool) -> list[list[str]]:
    owner = phrases.owner(row, now, longest=longest)
    asked = phrases.plain(row.use.policy) if policy and row.use else ""
    line = [row.gpu, phrases.pid(row), row.kind or "-", owner, phrases.with_unit(row.held), asked]
    more = [*phrases.parked(row), *phrases.figures(row)]
    return [line, *(["", "", "", f"  {words}", "", ""] for words in more)]


def columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Align rows under their heads, which begin with < or >. A row that stops early may run on to the right."""
    cells = [[head[1:] for head in heads], *rows]
    widths = [
        max((_width(row[column]) for row in cells if column < len(row) - (len(row) < len(heads))), default=0)
        for column in range(len(heads))
    ]
    # A column that is empty in every row is left out.
    shown = [column for column in range(len(heads)) if any(len(row) > column and row[column] for row in rows)]
    lines = []
    for row in cells:
        texts = [_pad(row[column], widths[column], heads[column][0]) for column in shown if column < len(row)]
        lines.append((" " + "  ".join(texts)).rstrip())
    return lines


def _pad(text: str, width: int, side: str) -> str:
    space = " " * (width - _width(text))
    return space + text if side == ">" else text + space


def _width(text: str) -> int:
    """Count a text's columns in a terminal: East Asian wide characters take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )
