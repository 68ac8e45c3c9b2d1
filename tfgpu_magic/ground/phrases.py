"""The phrases that all views share: figures, names made safe to show, and the lines around the tables."""

from __future__ import annotations

import time
import unicodedata
from typing import TYPE_CHECKING

from tfgpu_magic.ground import TENSORFLOW
from tfgpu_magic.ground.message import IPYTHON, Message
from tfgpu_magic.ground.units import BINARY

if TYPE_CHECKING:
    from tfgpu_magic.ground.rows import GpuRow, ProcessRow, Table
    from tfgpu_magic.ground.snapshot import Gpu

NOBODY = "No process holds GPU memory."
SIMULATED = "Simulated GPUs: memory is counted as on real ones, and what they compute means nothing."
TRY = "To try it without a GPU, on a simulated machine:"
TRY_COMMAND = "python -m tfgpu_magic.simgpu --gpus 4x16GiB -- jupyter lab"

_LATER = 60.0  # seconds that may lie between the end of a cell and the reading of its last use
_SHORT = 8  # characters of a name that stay in any case
_SMALLEST = 0.05  # GiB: less rounds to 0.0, which would read as nothing


def gib(size: int | None) -> str:
    """Write bytes as GiB with one decimal and without the unit: ``48.0``, ``<0.1``, and ``N/A`` for None."""
    if size is None:
        return "N/A"
    figure = size / BINARY["GiB"]
    return "<0.1" if 0 < figure < _SMALLEST else f"{figure:.1f}"


def with_unit(size: int | None) -> str:
    """Write bytes as `gib` does, with the unit: ``48.0 GiB``; None as ``N/A``."""
    return gib(size) if size is None else f"{gib(size)} GiB"


def seconds(length: float) -> str:
    """Write a time for people: ``0.8 s``, ``20 s``, ``2 min``, ``2 min 5 s``, ``3 h 20 min``."""
    if length < 60:
        return f"{length:.0f} s" if length == int(length) else f"{length:.1f} s"
    minutes, rest = divmod(round(length), 60)
    parts = {"min": minutes, "s": rest} if minutes < 60 else {"h": minutes // 60, "min": minutes % 60}
    return " ".join(f"{number} {unit}" for unit, number in parts.items() if number)


def clock(at: float) -> str:
    """Write a time of the day for people: ``14:02:11``."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def memory(gpu: Gpu) -> str:
    """Write what is held of a GPU: ``61.2 / 80 GiB``; and where the driver limits it, what can be had of it here."""
    most = "" if gpu.limit == gpu.total else f": {gib(gpu.limit).removesuffix('.0')} GiB"
    return f"{gib(gpu.used)} / {gib(gpu.total).removesuffix('.0')} GiB{f' (your limit{most})' * bool(gpu.limit)}"


def held_by(row: ProcessRow) -> str:
    """Write what a process holds, as `with_unit` does; nothing of one that holds nothing, because it waits for room."""
    return "" if row.waits and not row.process.held else with_unit(row.process.held)


def use(row: GpuRow) -> str:
    """Write this notebook's TensorFlow figures on a GPU: ``in use 31.2  peak 44.9 GiB``; nothing when unknown."""
    line = "  ".join(f"{one.what} {gib(one.size):>4}" for one in row.own.figures if one.framework == TENSORFLOW)
    return f"{clean(line)} GiB" if line else ""


def details(row: ProcessRow) -> list[str]:
    """Write what stands below a process, a line each: its wait, how it is parked, and other frameworks' figures."""
    return [*filter(None, [wait(row), parking(row)]), *figures(row)]


def wait(row: ProcessRow) -> str:
    """Write ``waits for 6.4 GiB on any GPU until 14:32``, or ``has had room since 14:06:40``; else nothing."""
    if (one := row.waits) is None:
        return ""
    if one.room is not None:
        return f"has had room since {clock(one.room)}"
    what = f"{with_unit(one.needs) if one.needs else 'room'}{' on any GPU' * one.any_gpu}"
    return f"waits for {what} {f'until {clock(one.until)[:5]}' if one.until else f'since {clock(one.since)[:5]}'}"


def parking(row: ProcessRow) -> str:
    """Write ``parked: 12 GiB in host memory, 0.5 GiB stay``, or ``back in 3.2 s``; nothing of what was never parked."""
    parked, held = row.use.parked, row.process.held
    if parked.size is None:
        return "" if parked.back is None else f"back in {seconds(parked.back)}"
    size, stay = (gib(one).removesuffix(".0") for one in (parked.size, held))
    if held is None:
        return f"parked: {size} GiB in host memory"
    return f"parked: {size} GiB in host memory, {stay} GiB stay"


def figures(row: ProcessRow) -> list[str]:
    """Write other frameworks' figures on a process, a line each: ``PyTorch allocated 0.3  reserved 1.2 GiB``."""
    lines: dict[str, str] = {}
    for one in row.use.figures:
        if one.framework != TENSORFLOW:
            before = f"{lines[one.framework]} " if one.framework in lines else one.framework
            lines[one.framework] = f"{before} {one.what} {gib(one.size)}"
    return [f"{clean(line, longest=200)} GiB" for line in lines.values()]


def driver_reserve(gpu: Gpu) -> list[str]:
    """Return what the driver keeps of a GPU, neither held nor free, if it is not negligible."""
    if gpu.total is None or gpu.used is None or gpu.free is None or gpu.limit is not None or gpu.unified:
        return []
    size = gpu.total - gpu.used - gpu.free
    return [f"kept by the driver {with_unit(size)}"] if size >= _SMALLEST * BINARY["GiB"] else []


def name(gpu: Gpu) -> str:
    """Write a GPU's name, and what is special about it."""
    special = [word for word, holds in (("MIG", gpu.mig), ("unified", gpu.unified)) if holds]
    return clean(gpu.name or "") + (f" ({', '.join(special)})" if special else "")


def pid(row: ProcessRow) -> str:
    """Write a process's id; ``-`` where it has none here."""
    return str(row.process.pid) if row.process.pid > 0 else "-"


def percent(part: float | None) -> str:
    """Write a percentage: ``37%``, and ``N/A`` for None."""
    return "N/A" if part is None else f"{part:.0f}%"


def owner(row: ProcessRow, now: float, *, longest: int) -> str:
    """Write whose a process is, and what its notebook does: ``eval.ipynb, idle 2 h``, ``eval.ipynb, unused 2 h``.

    That its GPU is unused stands in place of an idle state: it is what holding memory is about. If the idle time
    is more than a minute longer than the unused time, both are shown.

    Args:
        row: the process.
        now: seconds since the epoch.
        longest: how many characters all of it may have: the name is cut, and of two states the first is left out.
    """
    notebook, since = row.owner.notebook, row.process.unused
    told = notebook is not None and row.owner.who == "mine" and notebook.state != "unknown"  # `rows.UNKNOWN`
    state = clean(notebook.state) if notebook is not None and told else ""
    unused = now - since if since is not None else 0.0
    idle = now - notebook.active if notebook is not None and notebook.active is not None and state == "idle" else 0.0
    said = [f"{state} {duration(idle)}" if idle >= 60 else state] if state else []
    if unused >= 60:
        said = [*(said if state != "idle" or idle > unused + _LATER else []), f"unused {duration(unused)}"]
    room = longest - sum(len(f", {one}") for one in said)
    if room < _SHORT and len(said) > 1:
        room, said = room + len(f", {said[0]}"), said[1:]
    return ", ".join([clean(row.owner.text, longest=max(room, _SHORT)), *said])


def duration(seconds: float) -> str:
    """Write a longer time for people, in one unit: ``5 min``, ``3 h``, ``4 d``."""
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // 1440} d"


def clean(text: str, *, longest: int = 40) -> str:
    """Make text of unknown origin safe to show, in one line: a process chooses its name freely.

    Control, formatting (right-to-left overrides, say) and unpaired surrogate characters become ``?``; but not the
    joiners, without which Persian words and some emoji fall apart.

    Args:
        text: any text.
        longest: how many characters may stay; longer text is cut in the middle, since names differ at either end.
    """
    if len(text) > longest:
        half = (longest - 3) // 2
        text = f"{text[:half]}...{text[half + 3 - longest :]}"
    if text.isprintable():  # in a tenth of the time
        return text
    return "".join("?" if unicodedata.category(one) in _UNSAFE and one not in JOINERS else one for one in text)


def clean_lines(text: str) -> str:
    """Make sentences safe to show: each line, as `clean`. A name among them must have been made so before."""
    return "\n".join(clean(line, longest=_LONGEST_LINE) for line in text.split("\n"))


JOINERS = "\u200c\u200d"  # ZERO WIDTH NON-JOINER and JOINER
_LONGEST_LINE = 2000
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def has_report(table: Table) -> bool:
    """Return whether a kernel has reported on its GPUs, so that its columns have content."""
    return any(row.own.logical or row.own.policy or use(row) for row in table.gpus)


def no_processes(table: Table) -> list[str]:
    """Return a note that no process holds memory, if every GPU could be read and none has a process."""
    silent = table.processes or any(row.gpu.error for row in table.gpus)
    return [] if silent else [NOBODY]


def remarks(table: Table) -> list[Message | str]:
    """List the sentences below the tables: failures of single GPUs, this kernel's state, notes."""
    gpus = [row.gpu for row in table.gpus]
    troubles = [f"GPU {gpu.label}: {gpu.error}." for gpu in gpus if gpu.error and gpu.used is not None]
    simulated = [SIMULATED] if table.simulated else []
    summary = [table.summary] if table.summary else []
    return [_safe_note(one) for one in (*troubles, *summary, *table.notes, *simulated)]


def _safe_note(note: Message | str) -> Message | str:
    if isinstance(note, str):
        return clean_lines(note)
    return Message("{text}", {"text": clean_lines(IPYTHON.sentence(note))}, note.severity)
