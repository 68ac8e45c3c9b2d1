"""An answer: sentences, tables and more, each drawn as text, here, and as HTML, by `html`: what IPython shows."""

from __future__ import annotations

import itertools
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tfgpu_magic.ground import html, phrases
from tfgpu_magic.ground.message import IPYTHON, FrontEnd, Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfgpu_magic.ground.rows import GpuRow, ProcessRow, Table


OFFERS = "application/vnd.tfgpu-magic.offers+json"
"""What stands beside a text or HTML for JupyterLab to make buttons of. A front end that does not know this type shows
the other. For a text it has the `line` that was refused, and the `parts` in order: texts, and between them each `line`
that can be run, with whether it `restarts` the kernel. HTML has each line in an attribute (`html.to_paste`)."""


class Part(NamedTuple):
    """A part of an answer, as lines of text and as HTML."""

    lines: Sequence[str]
    html: str


class Answer:
    """What a line or a call answers; IPython shows it as HTML or as text, and `print` as text."""

    __slots__ = ()

    def _parts(self) -> Iterable[Part | Message | str]:
        """Return what it is made of; a text is a sentence."""
        raise NotImplementedError

    def text(self, front_end: FrontEnd = IPYTHON) -> str:
        """Return it as text, with its messages as a front end words them."""
        lines = (part.lines if isinstance(part, Part) else [_text(part, front_end)] for part in self._parts())
        return "\n".join(itertools.chain.from_iterable(lines))

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return html.page("".join(part.html if isinstance(part, Part) else html.remark(part) for part in self._parts()))


def _text(part: Message | str, front_end: FrontEnd) -> str:
    return part if isinstance(part, str) else front_end.text(part)


class Document(Answer):
    """An answer that is nothing but its parts."""

    __slots__ = ("_made_of",)

    def __init__(self, *parts: Part | Message | str) -> None:
        self._made_of = parts

    def _parts(self) -> Iterable[Part | Message | str]:
        return self._made_of


class Quiet(Document):
    """Sentences below a cell, which many cells have: small, and without the style of tables."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return f'<div style="{_QUIET}">{"<br>".join(html.prose(line) for line in repr(self).splitlines())}</div>'


_QUIET = (
    "font: var(--jp-ui-font-size0, .85em) var(--jp-ui-font-family, system-ui, sans-serif); "
    "color: var(--jp-ui-font-color1, inherit); opacity: .75; padding-left: 8px"  # JupyterLab's own indentation of text
)


@dataclass(frozen=True, slots=True, repr=False)
class Code:
    """Source text to copy; a front end highlights it, and IPython's terminal shows it as it is.

    Attributes:
        source: the text.
        language: its language, as Markdown's fences name it.
    """

    source: str
    language: str

    def __repr__(self) -> str:
        return self.source

    def _repr_markdown_(self) -> str:
        return f"```{self.language}\n{self.source.rstrip()}\n```"


def gpus(table: Table, here: str) -> Part:
    """Draw a row for each GPU with whose its memory is as a bar; `here` is the kind of the viewing process."""
    none = "-" if phrases.has_report(table) else ""
    rows = [_gpu(row, none=none) for row in table.gpus]
    lines = _columns((">GPU", "<Name", "<TF", ">Held", ">Free", f"<This {here}", "<Policy"), rows)
    return Part(lines, html.gpus(table, here))


def processes(table: Table) -> Part:
    """Draw the rows of the processes."""
    # Beside a notebook's own policy, which stands with the GPUs, there is no room for all others.
    policy = not phrases.has_report(table)
    rows = [line for row in table.processes for line in _process(row, table.time, policy=policy)]
    lines = _columns((">GPU", ">PID", ">Type", "<Owner", ">Held", "<Policy"), rows)
    return Part(lines, html.processes(table))


def headline(words: str, paste: str = "") -> Part:
    """Draw a sentence that stands out, and below it a line to paste, if there is one."""
    return sentence(words, paste, "<strong>{}</strong>")


def sentence(words: str, paste: str, form: str = "{}") -> Part:
    """Draw a sentence, in a form of HTML, and below it a line to paste; a sentence alone needs no part of its own."""
    below = f"<br>{html.prose(f'`{paste}`')}" if paste else ""
    return Part([words, f"  {paste}"] if paste else [words], f"<p>{form.format(html.prose(words))}{below}</p>")


def facts(known: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> Part:
    """Draw labels, each with lines of its own: a size, empty where there is none, and a text."""
    if not known:
        return Part([], "")
    width = max((len(label) for label, _ in known), default=0)
    named = [(label if at == 0 else "", *line) for label, lines in known for at, line in enumerate(lines)]
    lines = [f"  {label:<{width}}  {f'{size:>8}  ' if size else ''}{words}" for label, size, words in named]
    return Part(lines, html.facts(known))


def to_paste(lead: str, lines: Sequence[tuple[str, str]], runs: Mapping[str, bool] | None = None) -> Part:
    """Draw lines to paste below a sentence, each with what is to be known of it; nothing where there are none.

    Args:
        lead: the sentence.
        lines: each line and its remark; a remark without a line is a sentence.
        runs: those of the lines that a page can run, each with whether it restarts the kernel.
    """
    if not lines:
        return Part([], "")
    width = max((len(line) for line, _ in lines if line), default=0)
    drawn = [f"  {line:<{width}}   {remark}".rstrip() if line else f"  {remark}" for line, remark in lines]
    return Part([lead, *drawn], html.to_paste(lead, lines, runs or {}))


def grid(
    heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", *, indent: str = "", long: bool = False
) -> Part:
    """Draw a table, nothing where it has no rows; a column that is empty in every row is left out.

    Args:
        heads: the heads of its columns, each after ``<`` or ``>`` for the side to which its text is aligned.
        rows: the cells of each row; the first one names it.
        caption: its name in HTML.
        indent: what stands before each line of text.
        long: whether the names are long, so that they may break anywhere.
    """
    if not rows:
        return Part([], "")
    lines = [indent + line for line in _columns(heads, rows)]
    first, *others = [at for at in range(len(heads)) if any(row[at] for row in rows)]
    cells = (
        html.name(heads[first], row[first], long=long) + "".join(html.cell(heads[at], row[at]) for at in others)
        for row in rows
    )
    return Part(lines, html.grid(caption, [heads[at] for at in (first, *others)], cells))


_LONGEST = 40  # characters of a name in a column; of a longer one the end is shown


def _gpu(row: GpuRow, *, none: str) -> list[str]:
    gpu = row.gpu
    start = [gpu.label, phrases.name(gpu), row.own.names or none]
    if gpu.error and gpu.used is None:
        return [*start, f"N/A: {phrases.clean(gpu.error, longest=100)}."]
    return [*start, phrases.memory(gpu), phrases.with_unit(gpu.free), phrases.use(row), phrases.clean(row.own.policy)]


def _process(row: ProcessRow, now: float, *, policy: bool) -> list[list[str]]:
    owner, process = phrases.owner(row, now, longest=_LONGEST), row.process
    asked = phrases.clean(row.use.policy) if policy else ""
    line = [process.gpu, phrases.pid(row), process.kind or "-", owner, phrases.held_by(row), asked]
    return [line, *(["", "", "", f"  {words}", "", ""] for words in phrases.details(row))]


def _columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
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
    """Count a text's columns in a terminal: East Asian wide characters take two, combining ones and joiners none."""
    return sum(
        0
        if unicodedata.combining(character) or character in phrases.JOINERS
        else 2
        if unicodedata.east_asian_width(character) in "WF"
        else 1
        for character in text
    )
