"""`%%tf_gpu measure`: what the cell below, or an expression, does to GPU memory; `--fit` says how much to ask for."""

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
_USAGE = f"Write `%%tf_gpu measure [{_AS} NAME] [{_FIT}]` above a cell, or `%tf_gpu measure EXPRESSION`."


def _prepare(parsed: Line, cell: str, shell: Any) -> Callable[[], object]:
    rest, flags = part(parsed.rest.split(), _LACKS, f" {_USAGE}")
    if rest:
        tried = {other: flag.name for flag in FLAGS for other in flag.tried}
        meant = nearest(rest[0], _LACKS, tried) if rest[0].startswith("-") else ""
        raise PolicyError(f"{' '.join(rest)!r} cannot stand above a cell to be measured.{meant} {_USAGE}")
    return _measured(shell, cell, f"%%{parsed.magic} measure", None, flags)


def _answer(line: Line) -> object:
    flags: dict[str, str] = {}
    code = line.code
    while code.startswith((_FIT, _AS)):
        count = 2 if code.startswith(_AS) and "=" not in code.split()[0] else 1
        begin = code.split(maxsplit=count)
        code = begin[count] if len(begin) > count else ""
        flags |= part(begin[:count], _LACKS, f" {_USAGE}")[1]
    if code:
        return _measured(here(), code, "", line.names, flags)
    if list(flags) == [_FIT]:
        from tfgpu_magic.insight import asking  # few lines need it

        return asking.answer()
    raise PolicyError(f"Measure what? {_USAGE}")


def _measured(
    shell: Any, code: str, magic: str, names: Mapping[str, Any] | None, flags: Mapping[str, str]
) -> Callable[[], object]:
    from tfgpu_magic.insight.code import Shown, prepare  # few cells need it

    name = flags.get(_AS, "")
    if name and not name.isidentifier():
        raise PolicyError(f"{name!r} is no name. {_USAGE}")
    return prepare(shell, code, magic, names, Shown(name=name, fit=_FIT in flags))


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
    ("%%tf_gpu measure", "measure EXPRESSION", "measure --fit"),
    "what a cell or an expression does to GPU memory: its exact peak, and what stays; --fit says how much to ask for",
    flags=((_FIT, False), (_AS, True)),
    tried=("memit", "mprun", "profile", "peak", "time", "fit"),
    instead="What a cell takes is `%%tf_gpu measure` above it; how much to ask for is `%tf_gpu measure --fit`.",
    answer=_answer,
    above=_ABOVE,
    holds_code=True,
)
