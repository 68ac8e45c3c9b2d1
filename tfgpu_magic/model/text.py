"""Draws rows as aligned text for terminals and front ends without HTML. `model.rows` decides their content."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from tfgpu_magic.model import phrases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgpu_magic.model.rows import GpuRow, ProcessRow, Table

_LONGEST = 40  # characters of a name; of a longer one the end is shown


def gpus(table: Table, here: str) -> list[str]:
    """Draw a row for each GPU, with what the kernel has said of it; `here` is the kind of the viewing process."""
    none = "-" if phrases.of_kernel(table) else ""
    rows = [_gpu(row, none=none) for row in table.gpus]
    return columns((">GPU", "<Name", "<TF", ">Held", ">Free", f"<This {here}", "<Policy"), rows)


def processes(table: Table) -> list[str]:
    """Draw the rows of the processes."""
    # Beside a notebook's own policy, which stands with the GPUs, there is no room for all others.
    policy = not phrases.of_kernel(table)
    rows = [line for row in table.processes for line in _process(row, table.time, policy=policy)]
    return columns((">GPU", ">PID", ">Type", "<Owner", ">Held", "<Policy"), rows)


def _gpu(row: GpuRow, *, none: str) -> list[str]:
    start = [row.gpu, phrases.name(row), row.logical or none]
    if row.error and row.used is None:
        return [*start, f"N/A: {phrases.plain(row.error, longest=100)}."]
    return [*start, phrases.held(row), phrases.with_unit(row.free), phrases.use(row), phrases.plain(row.policy)]


def _process(row: ProcessRow, now: float, *, policy: bool) -> list[list[str]]:
    owner = phrases.owner(row, now, longest=_LONGEST)
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
