"""The line of `%%tf_gpu isolate`: flags and policy words in, plain data out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tfgpu_magic import units
from tfgpu_magic.config import grammar, words
from tfgpu_magic.config.policy import NOTHING
from tfgpu_magic.config.reading import MOST_PARTS
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.isolate.terms import Terms

_WORDS = {word.name for word in grammar.POLICY_WORDS}
_NAMES = "Write names with commas and no blanks between them: `x,y`."

WARM = "--warm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the line of an isolated cell asks.

    Attributes:
        inputs: the names to send; None for those that the cell reads.
        also: the names to send besides those.
        outputs: the names to bring back.
        terms: what is asked for it as for any call; no number of GPUs where nothing is said.
        detach: whether the notebook goes on meanwhile.
    """

    inputs: tuple[str, ...] | None = None
    also: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    terms: Terms = field(default_factory=Terms)
    detach: bool = False


def parse(line: str) -> Asked:
    """Read what follows `isolate`; a policy word may be a flag there, as in `--limit 2GiB`.

    Raises:
        PolicyError: it cannot be read; the error says which part.
    """
    flags: dict[str, str] = {}
    policy: list[str] = []
    tokens = iter(line.replace(";", " ; ").split())
    listed = False  # whether the token before was a list of names
    for token in tokens:
        flag, equals, value = token.partition("=")
        takes = {flag: takes for flag, takes, _ in grammar.ISOLATE_FLAGS}
        if flag in takes:
            if flag in flags:
                raise PolicyError(f"{flag} is given twice.")
            flags[flag] = (value or next(tokens, "")) if takes[flag] else ""
            if takes[flag] and (not flags[flag] or flags[flag].startswith("--")):
                raise PolicyError(f"{flag} needs {takes[flag]}. {usage()}")
            if equals and not takes[flag]:
                raise PolicyError(f"{flag} takes no value. {usage()}")
        elif listed and token.rstrip(",").isidentifier() and token.lower() not in _WORDS:
            raise PolicyError(f"{token!r} stands apart. {_NAMES}")
        else:
            policy += _word(token, begun=bool(policy))
        listed = flag in ("-i", "-o")
    sent = flags.get("-i")
    more = sent is not None and sent.startswith("+")
    return Asked(
        inputs=None if sent is None or more else _names(sent),
        also=_names(sent.replace("+", "")) if sent is not None and more else (),
        outputs=_names(flags.get("-o", "-")),
        terms=Terms(
            policy=words.parse(" ".join(policy)) if policy else NOTHING,
            gpus=_count(flags["--gpus"]) if "--gpus" in flags else None,
            timeout=units.seconds(flags["--timeout"]) if "--timeout" in flags else None,
        ),
        detach="--detach" in flags,
    )


def usage() -> str:
    """How the line is written."""
    flags = " ".join(f"[{f'{flag} {takes}'.rstrip()}]" for flag, takes, _ in grammar.ISOLATE_FLAGS)
    return f"Write `%%tf_gpu isolate {flags} [POLICY]`, with a policy as in `limit 2GiB` or `--limit 2GiB`."


def _word(token: str, *, begun: bool) -> Iterator[str]:
    """A token of the policy: a flag that is a word of its own begins the next request."""
    names = {f"--{name}" for name in _WORDS}
    known = names | {flag for word in grammar.POLICY_WORDS for flag, _ in word.flags if begun}
    flag = token.partition("=")[0].lower()
    if flag == "--help":
        raise PolicyError(f"{usage()}\n{grammar.flags()}")
    if token.startswith("-") and flag not in known:
        near = grammar.nearest(flag, [*sorted(known), *(name for name, *_ in grammar.ISOLATE_FLAGS)])
        raise PolicyError(f"isolate has no flag {flag!r}.{near} {usage()}")
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
