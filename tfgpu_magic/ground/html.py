"""Draws rows as a self-contained HTML fragment: no script, nothing loaded. `model.rows` decides their content.

Colours are those of JupyterLab's theme where it has variables; otherwise (VS Code, Colab) text and lines take the
surrounding colour. The owner of a bar's part shows in its pattern as well as its colour, and in words.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfgpu_magic.ground import phrases
from tfgpu_magic.ground.message import IPYTHON, Message, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfgpu_magic.ground.rows import GpuRow, ProcessRow, Table

_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})
"""What `html.escape` does; to import that takes longer than a first line's answer."""

_STYLE = """
.tfgpu { font: var(--jp-ui-font-size1, 13px)/1.5 var(--jp-ui-font-family, system-ui, sans-serif);
  color: var(--jp-ui-font-color1, inherit); max-width: 62rem; padding: 2px; container-type: inline-size;
  --this: var(--jp-brand-color1, #1976d2); --mine: var(--jp-accent-color1, #388e3c); --rest: #8a8a8a;
  --warn: var(--jp-warn-color1, #f57c00); --error: var(--jp-error-color1, #d32f2f); }
@media (forced-colors) { .tfgpu { --this: Highlight; --mine: CanvasText; --warn: LinkText; --error: CanvasText; } }
.tfgpu-scroll { overflow: auto; max-height: 30em; margin: 0 0 .6em; }
.tfgpu-scroll:focus-visible { outline: 2px solid var(--this); }
.tfgpu.tfgpu table { border-collapse: collapse; margin: 0; font-size: inherit; color: inherit; table-layout: auto;
  min-width: 60%; }
.tfgpu caption { text-align: left; font-weight: 600; padding: 0 .5em .2em; color: inherit; }
.tfgpu.tfgpu table th, .tfgpu.tfgpu table td { text-align: left; vertical-align: top; padding: .2em .5em; border: 0;
  border-bottom: 1px solid var(--jp-border-color2, rgba(128, 128, 128, .35)); font-variant-numeric: tabular-nums;
  overflow-wrap: break-word; white-space: normal; max-width: none; }
.tfgpu.tfgpu table thead th { font-weight: 600; white-space: nowrap; }
.tfgpu.tfgpu table tbody th { font-weight: 400; white-space: nowrap; }
.tfgpu.tfgpu table .tfgpu-n { text-align: right; white-space: nowrap; }
.tfgpu.tfgpu table .tfgpu-held { min-width: 10em; white-space: nowrap; }
.tfgpu.tfgpu table .tfgpu-name { min-width: 6em; overflow-wrap: anywhere; white-space: normal; }
.tfgpu.tfgpu table .tfgpu-use { white-space: pre; }
.tfgpu p { margin: .2em .5em; }
.tfgpu code { overflow-wrap: anywhere; }
.tfgpu-bar { display: flex; height: .6em; margin-top: .15em; border-radius: 2px; overflow: hidden;
  border: 1px solid var(--jp-border-color1, rgba(128, 128, 128, .6)); forced-color-adjust: none; }
.tfgpu-bar > span { flex: none; box-sizing: border-box; min-width: 2px; }
.tfgpu-key { display: inline-block; width: .9em; height: .7em; margin-right: .35em; border-radius: 2px;
  border: 1px solid var(--jp-border-color1, rgba(128, 128, 128, .6)); forced-color-adjust: none; }
.tfgpu-keys > span { display: inline-block; margin: 0 .3em; white-space: nowrap; }
.tfgpu-c0 { --tone: var(--this); }
.tfgpu-c1 { --tone: var(--mine); }
.tfgpu-c2 { --tone: var(--warn); }
.tfgpu-c3 { --tone: color-mix(in srgb, var(--this), var(--error)); }
.tfgpu-p0 { background: var(--tone); }
.tfgpu-p1 { background: repeating-linear-gradient(135deg, var(--tone) 0 4px, transparent 4px 6px); }
.tfgpu-p2 { background: repeating-linear-gradient(45deg, var(--tone) 0 2px, transparent 2px 4px); }
.tfgpu-others { background: repeating-linear-gradient(90deg, var(--rest) 0 2px, transparent 2px 4px); }
.tfgpu-free { background: transparent; min-width: 0; }
.tfgpu.tfgpu table .tfgpu-fact { width: 1%; white-space: nowrap; }
.tfgpu-paste code, .tfgpu-paste .tfgpu-offer { white-space: nowrap; }
@container (max-width: 30em) {
  .tfgpu.tfgpu table .tfgpu-paste, .tfgpu.tfgpu table .tfgpu-paste + td { display: block; }
  .tfgpu.tfgpu table .tfgpu-paste { border: 0; padding-bottom: 0; overflow-x: auto; }
  .tfgpu.tfgpu table th, .tfgpu.tfgpu table td { padding: .2em .25em; }
  .tfgpu.tfgpu table .tfgpu-name { min-width: 5em; } }
"""
# .tfgpu twice: JupyterLab aligns the cells of any output to the right with a selector that beats one class.
# Kept on one line: front ends count lines of an output before they fold it.
_STYLE_LINE = " ".join(_STYLE.split())

_OWN = ("this", "mine")
_COLOURS, _PATTERNS = 4, 3  # as in the live views (`labextension/style/view.css`): a notebook looks alike in all
_LONGEST = 60  # characters of a name; of a longer one the end is shown
_PROCESS_HEADS = (">GPU", ">PID", "<Type", "<Owner", ">Held")


def page(body: str) -> str:
    """Wrap HTML in an element with this package's style."""
    return f'<div class="tfgpu"><style>{_STYLE_LINE}</style>{body}</div>'


def gpus(table: Table, here: str) -> str:
    """Draw a row for each GPU, with what the kernel has said of it; `here` is the kind of the viewing process."""
    kernel = phrases.has_report(table)
    heads = (">GPU", "<Name", "<TF", "<Held", ">Free", f"<This {here}", "<Policy")
    shown = heads if kernel else tuple(head for head in heads[:5] if head != "<TF")
    return grid("GPU memory", shown, (_gpu(row, table.processes, kernel=kernel) for row in table.gpus))


def processes(table: Table) -> str:
    """Draw the rows of the processes."""
    return grid("Processes", _PROCESS_HEADS, (_process(row, table.time) for row in table.processes))


def grid(caption: str, heads: Sequence[str], rows: Iterable[str]) -> str:
    """Draw a table; it scrolls by itself, with the keyboard too.

    Args:
        caption: its name; empty where the text above it names it.
        heads: the heads of its columns, each after ``<`` or ``>`` for the side to which its text is aligned.
        rows: the cells of each row, as HTML.
    """
    head = "".join(f'<th scope="col"{_side(text)}>{_safe(text[1:])}</th>' for text in heads)
    return (
        f'<div class="tfgpu-scroll" role="region" aria-label="{caption}" tabindex="0"><table>'
        f"{f'<caption>{caption}</caption>' if caption else ''}<thead><tr>{head}</tr></thead>"
        f"<tbody><tr>{'</tr><tr>'.join(rows)}</tr></tbody></table></div>"
    )


def facts(known: Iterable[tuple[str, Sequence[tuple[str, str]]]]) -> str:
    """Draw labels, each with lines of its own: a size, empty where there is none, and a text."""
    rows: list[str] = []
    for label, lines in known:
        head = f'<th scope="row" rowspan="{len(lines)}" class="tfgpu-fact">{prose(label)}</th>'
        for size, words in lines:
            amount = f'<td class="tfgpu-n tfgpu-fact">{prose(size)}</td><td' if size else '<td colspan="2"'
            rows.append(f'{head}{amount} class="tfgpu-name">{prose(words)}</td>')
            head = ""
    return _table_without_heads("", rows)


def to_paste(lead: str, lines: Iterable[tuple[str, str]], runs: Mapping[str, bool]) -> str:
    """Draw lines to paste with what is to be known of each; a line is never broken.

    A line that a page can run has attributes for it: the line, and whether it restarts the kernel.
    """
    rows: list[str] = []
    for line, words in lines:
        restarts = " data-tfgpu-restarts" if runs.get(line) else ""
        code = f'code data-tfgpu-line="{_safe(line)}"{restarts}' if line in runs else "code"
        first = f'<td class="tfgpu-paste"><{code}>{_safe(line)}</code></td><td' if line else '<td colspan="2"'
        rows.append(f"{first}>{prose(words)}</td>")
    return _table_without_heads(f"<caption>{_safe(lead)}</caption>", rows)


def _table_without_heads(caption: str, rows: Sequence[str]) -> str:
    body = f"<tbody><tr>{'</tr><tr>'.join(rows)}</tr></tbody>"
    return f'<div class="tfgpu-scroll"><table>{caption}{body}</table></div>'


def cell(head: str, text: str) -> str:
    """Draw a cell of text, aligned as its head."""
    return f"<td{_side(head)}>{_safe(text)}</td>"


def name(head: str, text: str, *, long: bool) -> str:
    """Draw the cell that names its row; where there is little room a long text breaks anywhere."""
    side = ' class="tfgpu-name"' if long else _side(head)
    return f'<th scope="row"{side}>{_safe(text)}</th>'


def remark(what: Message | str) -> str:
    """Draw a sentence below a table; a warning stands out."""
    if isinstance(what, str):
        return f"<p>{prose(what)}</p>"
    warns = what.severity is Severity.WARNING
    head = ' class="tfgpu-warning"><strong>Warning:</strong> ' if warns else ">"
    return f"<p{head}{prose(IPYTHON.sentence(what))}</p>"


def prose(text: str) -> str:
    """Draw a sentence whose parts between backticks are code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", _safe(text))


def _side(head: str) -> str:
    return ' class="tfgpu-n"' if head.startswith(">") else ""


def _gpu(row: GpuRow, processes: Sequence[ProcessRow], *, kernel: bool) -> str:
    gpu, own = row.gpu, row.own
    name = f'<td class="tfgpu-name">{_safe(phrases.name(gpu))}</td>'
    start = f'<th scope="row" class="tfgpu-n">{_safe(gpu.label)}</th>{name}'
    if gpu.error and gpu.used is None:
        memory = f'<td colspan="2">N/A: {_safe(phrases.clean(gpu.error, longest=100))}.</td>'
    else:
        free = f'<td class="tfgpu-n">{_safe(phrases.with_unit(gpu.free))}</td>'
        memory = f'<td class="tfgpu-held">{_safe(phrases.memory(gpu))}{_bar(row, processes)}</td>{free}'
    if not kernel:
        return start + memory
    use, policy = _safe(phrases.use(row)), _safe(phrases.clean(own.policy))
    return f'{start}<td>{_safe(own.names or "-")}</td>{memory}<td class="tfgpu-use">{use}</td><td>{policy}</td>'


def _bar(row: GpuRow, processes: Sequence[ProcessRow]) -> str:
    """Draw a GPU's memory by owner. Parts may not add up to the total, which includes the driver's reserve."""
    gpu, others = row.gpu, row.others
    if gpu.used is None or not gpu.total or gpu.mig:
        return ""
    own = [one for one in processes if one.process.gpu == gpu.label and one.owner.who in _OWN]
    parts = [(phrases.clean(one.owner.text, longest=_LONGEST), one.held_or_reported, _classes(one)) for one in own]
    parts += [(others.text, others.size, "others")] if others else []
    parts += [("free", gpu.total - gpu.used if gpu.free is None else gpu.free, "free")]
    whole = max(gpu.total, sum(size or 0 for _, size, _ in parts))
    said = [(f"{text} {phrases.with_unit(size)}", 100 * size / whole, look) for text, size, look in parts if size]
    label = _safe(", ".join([*(words for words, _, _ in said), *phrases.driver_reserve(gpu)]))
    drawn = "".join(
        f'<span class="tfgpu-{look}" style="width:{width:.2f}%" title="{_safe(words)}"></span>'
        for words, width, look in said
    )
    return f'<div class="tfgpu-bar" role="img" aria-label="{label}">{drawn}</div>'


def _process(row: ProcessRow, now: float) -> str:
    # bdi: a right-to-left name stays in its cell.
    details = "".join(f"<br>{_safe(line)}" for line in phrases.details(row))
    owner = f"{_key(_classes(row))}<bdi>{_safe(phrases.owner(row, now, longest=_LONGEST))}</bdi>{details}"
    return (
        f'<td class="tfgpu-n">{_safe(row.process.gpu)}</td><td class="tfgpu-n">{phrases.pid(row)}</td>'
        f'<td>{_safe(row.process.kind or "-")}</td><th scope="row" class="tfgpu-name">{owner}</th>'
        f'<td class="tfgpu-n">{_safe(phrases.held_by(row))}</td>'
    )


def _classes(row: ProcessRow) -> str:
    """Return the classes of a process's colour and pattern: its notebook's, or those of what is not the reader's."""
    tone = row.tone or 0
    return f"c{tone % _COLOURS} tfgpu-p{tone % _PATTERNS}" if row.owner.who in _OWN else "others"


def _key(look: str) -> str:
    return f'<span class="tfgpu-key tfgpu-{look}" aria-hidden="true"></span>'


def _safe(text: str) -> str:
    return text.translate(_ESCAPED)
