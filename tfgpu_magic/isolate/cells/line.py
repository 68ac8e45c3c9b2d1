"""Parses the line of `%%tf_gpu isolate`: flags and policy words in, plain data out. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tfgpu_magic import units
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.isolate.run import Options
from tfgpu_magic.policy import parser
from tfgpu_magic.policy.arguments import MOST_PARTS, separate
from tfgpu_magic.policy.policy import NOTHING
from tfgpu_magic.policy.word import Above

_WORDS = {word.name for word in parser.POLICY_WORDS}
_NAMES = "Write names with commas and no blanks between them: `x,y`."


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLine:
    """What the line of an isolated cell asks.

    Attributes:
        inputs: the names to send; None for those that the cell reads.
        also: further names to send.
        outputs: the names to bring back.
        options: the options that any call has; the number of GPUs is None by default.
        detach: whether the notebook goes on meanwhile.
        flags: the flags as they were written.
    """

    inputs: tuple[str, ...] | None = None
    also: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    options: Options = field(default_factory=Options)
    detach: bool = False
    flags: str = field(default="", compare=False)

    @property
    def above(self) -> str:
        """The line above the cell, without its policy."""
        return f"%%{'gpu' if self.options.frameworks == 'all' else 'tf_gpu'} isolate{self.flags}"


def parse(line: str, form: Above) -> CellLine:
    """Return what the text after `isolate` asks; a policy word may be a flag there, as in `--limit 2GiB`.

    Raises:
        PolicyError: it cannot be read; the message names the part.
    """
    tokens = line.replace(";", " ; ").split()
    _refuse_apart(tokens)
    lacks = {flag.name: flag.takes and f"{flag.name} needs {flag.takes}." for flag in form.flags}
    rest, given = separate(tokens, lacks, f" {form.usage}")
    policy: list[str] = []
    for token in rest:
        policy += _word(token, form, begun=bool(policy))
    sent = given.get("-i")
    more = sent is not None and sent.startswith("+")
    return CellLine(
        inputs=None if sent is None or more else _names(sent),
        also=_names(sent.replace("+", "")) if sent is not None and more else (),
        outputs=_names(given.get("-o", "-")),
        options=Options(
            policy=parser.parse(" ".join(policy)) if policy else NOTHING,
            gpus=_count(given["--gpus"]) if "--gpus" in given else None,
            timeout=units.seconds(given["--timeout"]) if "--timeout" in given else None,
        ),
        detach="--detach" in given,
        flags="".join(f" {flag} {value}".rstrip() for flag, value in given.items()),
    )


def _refuse_apart(tokens: Sequence[str]) -> None:
    """Refuse a name that follows a list of names after a blank."""
    for place, token in enumerate(tokens):
        if token.partition("=")[0] in ("-i", "-o"):
            behind = place + (1 if "=" in token[:-1] else 2)
            for name in tokens[behind : behind + 1]:
                if name.rstrip(",").isidentifier() and name.lower() not in _WORDS:
                    raise PolicyError(f"{name!r} stands apart. {_NAMES}")


def _word(token: str, form: Above, *, begun: bool) -> Iterator[str]:
    """Give the policy's tokens for a token of the line: a flag that is a policy word begins the next request."""
    names = {f"--{name}" for name in _WORDS}
    known = names | {flag for word in parser.POLICY_WORDS for flag, _ in word.flags if begun}
    flag = token.partition("=")[0].lower()
    if flag == "--help":
        raise PolicyError(f"{form.usage}\n{parser.flags(form.flags)}")
    if token.startswith("-") and flag not in known:
        tried = {tried: one.name for one in form.flags for tried in one.tried}
        near = parser.nearest(flag, [*sorted(known), *(one.name for one in form.flags)], tried)
        raise PolicyError(f"isolate has no flag {flag!r}.{near} {form.usage}")
    if flag in names:
        if begun:
            yield ";"
        token = token[2:].replace("=", " ", 1)
    yield token


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
