"""`%tf_gpu measure`: what the cell that it stands in does to GPU memory; `--fit` says how much to ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tfgpu_magic.errors import PolicyError
from tfgpu_magic.ground.host import shell as here
from tfgpu_magic.ground.message import in_a_row
from tfgpu_magic.insight import recommend
from tfgpu_magic.insight.tracker import CellMeasure
from tfgpu_magic.notebook.words.table import MEASURED
from tfgpu_magic.policy.arguments import separate
from tfgpu_magic.policy.parser import nearest
from tfgpu_magic.policy.word import ParsedLine

_FIT, _AS = "--fit", "--as"
_LACKS = {_AS: f"{_AS} which name?", _FIT: ""}


def prepare(parsed: ParsedLine, cell: str, shell: Any) -> Callable[[], object]:
    """Return what has the cell measured."""
    flags = _flags(parsed)
    if cell.strip():  # IPython refuses an empty one
        raise PolicyError(in_a_row(("Only a whole cell is measured so.", MEASURED.usage)))
    return lambda: _measure(shell, flags)


def answer(line: ParsedLine) -> object:
    """Have the cell measured; or return how much to ask for."""
    flags = _flags(line)
    if list(flags) == [_FIT]:
        return recommend.recommendation()
    _measure(here(), flags)
    return None


def _flags(line: ParsedLine) -> Mapping[str, str]:
    rest, flags = separate(line.rest.split(), _LACKS, MEASURED.usage)
    if rest:
        tried = {other: flag.name for flag in MEASURED.flags for other in flag.tried}
        meant = nearest(rest[0], _LACKS, tried) if rest[0].startswith("-") else ""
        raise PolicyError(in_a_row((f"`measure {line.rest}` cannot be done.{meant}", MEASURED.usage)))
    if _AS in flags and not flags[_AS].isidentifier():
        raise PolicyError(in_a_row((f"{flags[_AS]!r} is no name.", MEASURED.usage)))
    return flags


def _measure(shell: Any, flags: Mapping[str, str]) -> None:
    CellMeasure(shell, name=flags.get(_AS, ""), fit=_FIT in flags).start()
