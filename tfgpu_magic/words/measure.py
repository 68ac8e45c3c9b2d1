"""`%tf_gpu measure`: what the cell that it stands in does to GPU memory; `--fit` says how much to ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tfgpu_magic.config.flags import part
from tfgpu_magic.config.vocabulary import nearest
from tfgpu_magic.config.word import Above, Flag, Line, Word
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.host import shell as here

_FIT, _AS = "--fit", "--as"
FLAGS = (
    Flag(_AS, "NAME", "put the result into a name, as an object", tried=("-o", "--to", "--name")),
    Flag(_FIT, "", "say how much to ask for, too: from the highest peaks of this session, with a margin"),
)
_LACKS = {_AS: f"{_AS} which name?", _FIT: ""}
_USAGE = (
    f"Write `%tf_gpu measure [{_AS} NAME]` or `%%tf_gpu measure [{_AS} NAME] [{_FIT}]` in the first line of a cell, or "
    "`with tfgpu_magic.measure() as m:` above a part of it."
)


def _prepare(parsed: Line, cell: str, shell: Any) -> Callable[[], object]:
    flags = _flags(parsed)
    if cell.strip():  # IPython refuses an empty one
        raise PolicyError(f"Only a whole cell is measured so. {_USAGE}")
    return lambda: _measure(shell, flags)


def _answer(line: Line) -> object:
    flags = _flags(line)
    if list(flags) == [_FIT]:
        from tfgpu_magic.insight import asking  # few lines need it

        return asking.answer()
    _measure(here(), flags)
    return None


def _flags(line: Line) -> Mapping[str, str]:
    rest, flags = part(line.rest.split(), _LACKS, f" {_USAGE}")
    if rest:
        tried = {other: flag.name for flag in FLAGS for other in flag.tried}
        meant = nearest(rest[0], _LACKS, tried) if rest[0].startswith("-") else ""
        raise PolicyError(f"`measure {line.rest}` cannot be done.{meant} {_USAGE}")
    if _AS in flags and not flags[_AS].isidentifier():
        raise PolicyError(f"{flags[_AS]!r} is no name. {_USAGE}")
    return flags


def _measure(shell: Any, flags: Mapping[str, str]) -> None:
    from tfgpu_magic.insight.tracker import CellMeasure  # few cells need it

    CellMeasure(shell, name=flags.get(_AS, ""), fit=_FIT in flags).start()


def _offers(
    tokens: Sequence[str], _gpus: Callable[[], Sequence[str]], _names: Callable[[], Iterable[str]]
) -> list[str]:
    return [flag.name for flag in FLAGS if flag.name not in tokens]


_ABOVE = Above(
    FLAGS,
    "",
    _USAGE,
    "Above a cell, `%%tf_gpu measure` says what it did to GPU memory: the exact peak of each logical GPU, what stayed "
    "in use, and what the driver gave. The cell runs in the notebook as any other.",
    _offers,
    _prepare,
)
WORD = Word(
    "measure",
    ("%%tf_gpu measure", "measure", "measure --fit"),
    "what its cell does to GPU memory: the exact peak, and what stays; --fit says how much to ask for",
    flags=((_FIT, False), (_AS, True)),
    tried=("memit", "mprun", "profile", "peak", "time", "fit"),
    instead="What a cell takes is `%%tf_gpu measure` above it; how much to ask for is `%tf_gpu measure --fit`.",
    answer=_answer,
    above=_ABOVE,
)
