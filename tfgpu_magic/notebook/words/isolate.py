"""`%%tf_gpu isolate`: the cell below runs in a process of its own. In a line, `--warm` prepares for that.

What the line above the cell asks is read here; `isolate.cells` runs the cell.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tfgpu_magic.errors import PolicyError
from tfgpu_magic.ground import units
from tfgpu_magic.ground.message import WAIT, paragraph
from tfgpu_magic.insight.why import explaining
from tfgpu_magic.isolate.call import CellCall
from tfgpu_magic.isolate.cells import jobs
from tfgpu_magic.isolate.cells.cell import Cell, without_frames
from tfgpu_magic.isolate.process.forkserver_client import FORK_SERVER
from tfgpu_magic.isolate.sinks import Sink, of_running_cell
from tfgpu_magic.policy import parser
from tfgpu_magic.policy.arguments import MOST_PARTS
from tfgpu_magic.policy.policy import NOTHING
from tfgpu_magic.policy.word import ParsedLine

_WORDS = {word.name for word in parser.POLICY_WORDS}
_NAMES = "Write names with commas and no blanks between them: `x,y`."


def prepare(line: ParsedLine, cell: str, shell: Any) -> Callable[[], object]:
    """Return what runs the cell and returns its value, or detaches it, and returns its job."""
    asked = read(line)
    try:
        sink, defer = (of_running_cell(), jobs.deferred(shell).do) if asked.detach else (Sink(), None)
        prepared = Cell(shell, asked, cell, sink, explaining.explain_call, defer)
    except OSError as error:  # there is no memory for what it reads
        raise without_frames(error) from None
    return functools.partial(jobs.Job, prepared) if asked.detach else prepared.run


def run(line: ParsedLine) -> None:
    """Start the fork server for isolated cells, without waiting for it."""
    if not line.flags:
        raise PolicyError(paragraph(("`isolate` stands above a cell.", line.word.forms)))
    FORK_SERVER.process()
    print("Getting ready for isolated cells: TensorFlow is being imported for them.")


def read(line: ParsedLine) -> CellCall:
    """Return what a line above a cell asks.

    Raises:
        PolicyError: it cannot be read; the message names the part.
    """
    _refuse_apart(line.rest.split())
    flags, policy = line.flags, " ".join(line.values)
    sent = flags.get("-i")
    more = sent is not None and sent.startswith("+")
    options: dict[str, Any] = {flag[2:]: value for flag, value in flags.items() if flag.startswith("--") and value}
    if "gpus" in options:
        options["gpus"] = _count(options["gpus"])
    if "wait" in options:
        options["wait"] = units.parse_seconds(options["wait"])
    return CellCall.checked(
        policy=parser.parse(policy) if policy else NOTHING,
        frameworks=line.frameworks,
        inputs=None if sent is None or more else _names(sent),
        also=_names(sent.replace("+", "")) if sent is not None and more else (),
        outputs=_names(flags.get("-o", "-")),
        detach="--detach" in flags,
        flags="".join(f" {flag} {value}".rstrip() for flag, value in flags.items() if flag != WAIT),
        **options,
    )


def _refuse_apart(tokens: Sequence[str]) -> None:
    """Refuse a name that follows a list of names after a blank."""
    for place, token in enumerate(tokens):
        if token.partition("=")[0] in ("-i", "-o"):
            behind = place + (1 if "=" in token[:-1] else 2)
            for name in tokens[behind : behind + 1]:
                if name.rstrip(",").isidentifier() and name.lower() not in _WORDS:
                    raise PolicyError(f"{name!r} stands apart. {_NAMES}")


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name for name in text.split(",") if name and name != "-"))
    for name in names:
        if not name.isidentifier():
            raise PolicyError(f"{name!r} is not a name. {_NAMES}")
    return names


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_PARTS:
        raise PolicyError(f"--gpus is a number from 1 to {MOST_PARTS}, not {text!r}. For none, say `visible none`.")
    return int(text)
