"""Draws rows as lines that fill a terminal, for `tfgpu top`. `model.rows` decides their content."""

from __future__ import annotations

import textwrap
import time
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Group
from rich.live import Live
from rich.text import Text

from tfgpu_magic.ground import TENSORFLOW, phrases
from tfgpu_magic.ground.rows import by_gpu

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfgpu_magic.ground.message import Message
    from tfgpu_magic.ground.rows import GpuRow, ProcessRow, Table

TITLE, HINT = "GPU memory, in GiB", "q quits"

_SHARES = {"yours": ("█", "cyan"), "others'": ("▒", "yellow"), "free": ("·", "dim")}
"""The character and the colour of each share of a bar: the one tells it without the other."""

_LABEL, _PID, _FIGURE = 4, 7, 8  # columns
_WIDE = 100
_NAME, _BAR = 20, 60  # columns at the most: of a GPU's name where the screen is narrow, and of a bar
_OWNER, _POLICY = 26, 15  # columns of a wide screen's owner at the least, and of a narrow one's policy


def full_screen() -> Live:
    """Return a context manager that draws on the whole terminal, and restores it at the end."""
    return Live(screen=True, auto_refresh=False, redirect_stdout=False)


def screen(table: Table, *, width: int, height: int) -> Group:
    """Return a table as lines, no more than there is room for.

    Args:
        table: the rows.
        width: columns of the terminal.
        height: lines of the terminal.
    """
    head, foot = _head(table, width), _foot(table, width)
    room = max(1, height - len(head) - len(foot))
    processes = by_gpu(table.processes, lambda row: row.process.gpu)
    most = _rows_per_gpu([len(rows) for rows in processes.values()], room - len(table.gpus))
    if processes and not most:
        head[-1] = Text(f"Processes for which this terminal has no room: {len(table.processes)}", "dim")
    longest = max((len(phrases.name(row.gpu)) for row in table.gpus), default=0)
    name = min(longest, _NAME if width < _WIDE else 2 * _NAME)
    body: list[Text] = []
    for row in table.gpus:
        body += [_gpu(row, name, width), *_processes(processes.get(row.gpu.label, ()), table.time, width, most)]
    if len(body) > room:  # of GPUs alone
        body[room - 1 :] = [Text(f"{'':>{_LABEL}}and {len(body) - room + 1} more GPUs", "dim")]
    lines = [*head, *body, *foot]
    return Group(*(_truncate(line, width) for line in lines[:height]))


def _head(table: Table, width: int) -> list[Text]:
    age = Text("", "dim")
    if table.stale_since is not None:
        age = Text(f"stale since {time.strftime('%H:%M:%S', time.localtime(table.stale_since))}", "bold red")
    elif table.gpus:
        age = Text(f"live · {max(1, round(table.every))} s", "green")
    title = Text.assemble((TITLE, "bold"))
    if width >= _WIDE:
        title.append("   ")
        for word, (character, colour) in _SHARES.items():
            title.append(character, colour).append(f" {word}  ")
    right = Text.assemble(age, (f" · {HINT}" if age else HINT, "dim"))
    lines = [Text.assemble(title, " " * max(1, width - title.cell_len - right.cell_len), right)]
    if table.processes:
        words = _columns(("PID", "Owner", "Held", "In use", "Peak", "Policy"), width)
        lines.append(Text.assemble((words, "dim")))
    return lines


def _foot(table: Table, width: int) -> list[Text]:
    said: list[Message | str]
    if table.error:
        said = [phrases.clean(table.error, longest=400)]
        said += [phrases.TRY, "  " + phrases.TRY_COMMAND] if table.absent else []
    else:
        said = [*phrases.no_processes(table)]
    lines = [Text("")] if (said := [*said, *phrases.remarks(table)]) else []
    return lines + [
        Text(line) for one in said for line in textwrap.wrap(str(one), max(1, width), break_on_hyphens=False)
    ]


def _gpu(row: GpuRow, name: int, width: int) -> Text:
    """Return a GPU's line: its number, its name in so many columns, whose its memory is as a bar, and its figures."""
    gpu = row.gpu
    start = Text(f"{gpu.label:>{_LABEL - 1}} {_fit(phrases.name(gpu), name)}", "bold")
    if gpu.error and gpu.used is None:
        return start.append(f" N/A: {phrases.clean(gpu.error, longest=100)}.", "red")
    figures = f"{phrases.memory(gpu)}  free {phrases.gib(gpu.free):>5}  use {phrases.percent(gpu.utilisation):>4}"
    bar = min(_BAR, width - start.cell_len - len(figures) - 3)
    return Text.assemble(start, " ", _bar(row, max(0, bar)), "  ", figures)


def _bar(row: GpuRow, cells: int) -> Text:
    """Return a bar of so many cells; each share that is not nothing has one at the least."""
    total, free, used = row.gpu.total, row.gpu.free, row.gpu.used
    if not total or used is None or row.gpu.mig or cells < len(_SHARES):
        return Text(" " * cells)
    others = row.others.size if row.others else 0
    sizes = {"yours": used - others, "others'": others}
    lengths = {whose: max(1, round(cells * size / total)) for whose, size in sizes.items() if size > 0}
    while sum(lengths.values()) > cells:
        longest = max(lengths, key=lambda whose: lengths[whose])
        lengths[longest] -= 1
    room = cells - sum(lengths.values())
    part = free / total if row.gpu.unified and free is not None else 1.0  # other programs have the rest
    lengths["free"] = min(room, round(cells * part))
    bar = Text()
    for whose, length in lengths.items():
        character, colour = _SHARES[whose]
        bar.append(character * length, colour)
    return bar.append(" " * (cells - len(bar)))


def _processes(rows: Sequence[ProcessRow], now: float, width: int, most: int) -> Iterable[Text]:
    """Yield the lines of a GPU's processes, the largest first, and a last line for those that have no room."""
    shown = rows if len(rows) <= most else rows[: max(0, most - 1)]
    for row in shown:
        yield _process(row, now, width)
    if most and (hidden := rows[len(shown) :]):
        held = phrases.with_unit(sum(row.held_or_reported or 0 for row in hidden))
        yield Text(f"{'':>{_LABEL + _PID}}  and {len(hidden)} more, {held}", "dim")


def _process(row: ProcessRow, now: float, width: int) -> Text:
    peaks = [figure.size for figure in row.use.figures if figure.peak]
    in_use, room = row.use.in_use, _owner(width)
    wider = cell_len(phrases.owner(row, now, longest=room)) - room  # some characters take two columns
    words = (
        phrases.pid(row),
        phrases.owner(row, now, longest=room - max(0, wider)),
        phrases.held_by(row).removesuffix(" GiB"),
        "" if in_use is None else phrases.gib(in_use),
        phrases.gib(sum(peaks)) if peaks else "",
        _status_text(row),
    )
    return Text(_columns(words, width), "" if row.owner.who in ("this", "mine") else "yellow")


def _status_text(row: ProcessRow) -> str:
    """Return whether a process waits or is parked; else its policy, and the frameworks with figures but TensorFlow."""
    if row.waits:
        return phrases.wait(row)
    if row.use.parked.size:
        return f"parked {phrases.gib(row.use.parked.size).removesuffix('.0')} GiB"
    others = {figure.framework: None for figure in row.use.figures if figure.framework != TENSORFLOW}
    policy = [phrases.clean(row.use.policy)] if row.use.policy else []
    return ", ".join([*policy, *map(phrases.clean, others)])


def _columns(words: tuple[str, str, str, str, str, str], width: int) -> str:
    pid, owner, *figures, policy = words
    room = _owner(width)
    numbers = "".join(f"{figure:>{_FIGURE}}" for figure in figures)
    start = f"{pid:>{_LABEL + _PID}}  {_fit(owner, room)}{numbers}"
    if cell_len(policy) > width - cell_len(start) - 2:  # it takes the room of figures that there are none of
        start = f"{start.rstrip():<{width - cell_len(policy) - 2}}"
    return f"{start}  {policy}"


def _owner(width: int) -> int:
    """Return the columns of the owner's name: what the other columns leave of a narrow screen, and more of a wide."""
    rest = width - _LABEL - _PID - 2 - 3 * _FIGURE - 2 - _POLICY
    return max(12, rest if width < _WIDE else max(_OWNER, min(rest - 2 * _POLICY, 60)))


def _rows_per_gpu(counts: Sequence[int], room: int) -> int:
    """Return how many lines each GPU's processes may have, so that all have room: the same for every GPU."""
    most = max(counts, default=0)
    while most and sum(min(count, most) for count in counts) > room:
        most -= 1
    return most


def _fit(words: str, width: int) -> str:
    """Return a text of so many columns, cut on the right or filled with spaces."""
    text = Text(words)
    text.truncate(width, overflow="ellipsis", pad=True)
    return text.plain


def _truncate(line: Text, width: int) -> Text:
    line.no_wrap = True
    line.truncate(width, overflow="ellipsis")
    return line
