"""The language of policies: its words, found by name, explained, completed and suggested; and text to policy. Pure."""

from __future__ import annotations

import difflib
import itertools
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from tfgpu_magic.errors import PolicyError, UnknownWord
from tfgpu_magic.ground import units
from tfgpu_magic.ground.message import HELP, MAGIC, Line, Message, msg, paragraph
from tfgpu_magic.policy import requests
from tfgpu_magic.policy.arguments import SIZES, is_number, readings
from tfgpu_magic.policy.policy import Memory, Policy, Request
from tfgpu_magic.policy.requests import default
from tfgpu_magic.policy.requests.growth import NO_LIMIT
from tfgpu_magic.policy.word import Flag, Word

POLICY_WORDS = tuple(request.WORD for request in requests.REQUESTS)

_GIVES_BACK = msg(
    "TensorFlow gives memory back to the driver only when its process ends, unless `{release}` was said before its "
    "first use. Restart the kernel, or run such work in a cell that begins with `{isolate}`: its process ends with it. "
    "`{free}` lets go of what nobody needs, for TensorFlow to use again.",
    release=Line("growth --release"),
    isolate=Line("isolate", "above"),
    free=Line("free"),
)
_IMPOSSIBLE = dict.fromkeys(("reset", "clear", "unset"), paragraph((default.DROPS, _GIVES_BACK))) | {
    "restart": msg("Write --restart at the end of a line: `{line}`.", line=Line("limit 40%", restarts=True))
}
"""Answers to words for what is not possible in a process that lives on."""

_FLAGS = dict.fromkeys(("--growth", "--cap"), "--grow")
"""Flags that people may try instead of a policy's, and that do not look like them."""

WIDTH = 80
"""Characters in a line of the help: a cell of a notebook shows so many in one line beside an open sidebar."""

_UNIT = "|".join([*units.BINARY, *units.DECIMAL, *units.LETTERS])
_NAME = "|".join(row.WORD.name for row in requests.REQUESTS)


def parse(text: str) -> Policy:
    """Parse a policy: one request, or several with ``;`` between them.

    Args:
        text: for example ``growth``, ``limit 0=1GiB 1=25% --grow`` or ``pick 1; limit 2GiB``.

    Returns:
        The policy; `str` of it is parsed as the same policy.

    Raises:
        PolicyError: the text is no policy; the error says which part is not, and what would be.
    """
    asked = [request for part in text.split(";") if part.strip() for request in _requests(part)]
    if not asked:
        raise PolicyError("No command was given. The commands are:\n" + usage([row.WORD for row in requests.REQUESTS]))
    for place, later in enumerate(asked):
        undone = [earlier for earlier in asked[:place] if later.replaces(earlier)]
        if undone:
            raise PolicyError(f"`{later}` would undo `{undone[0]}`, which is said before it.{_both(later, undone[0])}")
    return Policy(tuple(asked))


def _both(later: Request, earlier: Request) -> str:
    """Return how to ask for growth and a limit together, if one of both is a limit and the other growth."""
    memory = [request for request in (later, earlier) if isinstance(request, Memory)]
    growth = [request for request in memory if not request.limited]
    limit = [request for request in memory if request.limited]
    if not growth or not limit:
        return ""
    if growth[0].releases:
        return f" They cannot be had together. {NO_LIMIT}"
    if growth[0].grows:
        return f" For both, say `{limit[0].growing(on=True)}`."
    return f" A limit is taken at once, and nothing grows: say `{limit[0]}` alone."


def _requests(text: str) -> Sequence[Request]:
    name, *tokens = _close_up(text).split()
    word = find(name, [row.WORD for row in requests.REQUESTS])
    values, flags = _sort(word, tokens)
    return next(row for row in requests.REQUESTS if row.WORD is word).read(values, flags)


def _close_up(text: str) -> str:
    """Remove the blanks that people put into one value: ``0 = 1 GiB`` is ``0=1GiB``.

    Raises:
        PolicyError: a comma separates policies, or a number has one: ``2,5GiB`` would be two values.
    """
    comma = "," in text  # to compile a pattern takes longer than all else here
    if comma and re.search(rf"^\s*(?:{_NAME})\s*,|,\s*(?:{_NAME})\b", text, flags=re.IGNORECASE):
        raise PolicyError("Separate policies with `;` and not with a comma, as in `pick; limit 2GiB`.")
    text = re.sub(r"\s*=\s*", "=", text)
    text = re.sub(rf"(?<=[0-9])\s+(?=(?:%|{_UNIT})(?:[\s,]|$))", "", text, flags=re.IGNORECASE)
    number = comma and re.search(rf"(?<![0-9.])[0-9]+,[0-9]+(?:%|{_UNIT})(?=[\s,]|$)", text, flags=re.IGNORECASE)
    if number:
        raise PolicyError(f"{number[0]!r} has a comma. Write {number[0].replace(',', '.')}.")
    return text


def _sort(word: Word, tokens: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Separate the values from the flags, each flag with its value ("" where it has none).

    Raises:
        PolicyError: the word has no such flag; or a flag is given twice, without its value, or with one that it does
            not take.
    """
    known = {flag.name: bool(flag.takes) for flag in word.flags}
    values: list[str] = []
    flags: dict[str, str] = {}
    left = iter(tokens)
    for token in left:
        flag, equals, value = token.partition("=")
        if flag not in known:
            values.append(token)
            continue
        if flag in flags:
            raise PolicyError(f"{flag} is given twice.")
        if equals and not known[flag]:
            raise word.error(f"{flag} takes no value.")
        if known[flag]:
            value = value or next(left, "")
            if not value or value.startswith("--"):
                raise word.error(f"{flag} of what? It needs a value.")
        flags[flag] = value
    for flag in (value.partition("=")[0] for value in values if value.startswith("--")):
        raise word.error(f"{word.name!r} has no flag {flag!r}.{_apart(flag) or nearest(flag, known)}")
    return values, flags


def _apart(flag: str) -> str:
    """Return a sentence on a flag that only one word can have; nothing where it is none."""
    known = {name: (row.WORD, why) for row in requests.REQUESTS for name, why in row.WORD.apart}
    return f" It goes with `{known[flag][0].name}` alone. {known[flag][1]}" if flag in known else ""


def usage(words: Iterable[Word]) -> str:
    """Return the words and their meanings as aligned text."""
    return aligned([(word.usage, word.meaning) for word in words])


def flags(flags: Iterable[Flag]) -> str:
    """Return flags and their meanings as aligned text, without those that have none."""
    return aligned([((flag.usage,), flag.meaning) for flag in flags if flag.meaning])


def aligned(entries: Sequence[tuple[tuple[str, ...], str]]) -> str:
    """Return forms with their meanings beside them, in lines of `WIDTH` characters that break between words."""
    margin = 4 + max((len(form) for forms, _ in entries for form in forms), default=0)
    rows = [
        row
        for forms, meaning in entries
        for row in itertools.zip_longest(
            forms, textwrap.wrap(meaning, WIDTH - margin, break_on_hyphens=False), fillvalue=""
        )
    ]
    return "\n".join(f"  {form:<{margin - 2}}{meaning}".rstrip() for form, meaning in rows)


def find(name: str, words: Sequence[Word]) -> Word:
    """Return the word of that name.

    Raises:
        UnknownWord: there is no such word; the error's text suggests the nearest.
    """
    for word in words:
        if name.lower() in word.names:
            return word
    raise unknown(name, _instead(name.replace(",", "."), words))


def unknown(name: str, instead: Message | str) -> UnknownWord:
    """Return the error for a word that is none.

    Args:
        name: the word.
        instead: what to write in its place, a sentence or more.
    """
    what = msg("{name} is not a command of {magic}. {instead}", name=repr(name), magic=MAGIC, instead=instead)
    return UnknownWord(what, name)


def _instead(name: str, words: Sequence[Word]) -> Message | str:
    """Return a sentence with what to write instead of an unknown word."""
    if is_number(name):
        return msg("For a limit, write `{line}` and {readings}.", line=Line("limit"), readings=readings(name))
    if re.match(r"[0-9]", name):
        return msg("For a limit, write `{line}`.", line=Line(f"limit {name}"))
    tried = {**_IMPOSSIBLE, **{tried: word.instead for word in words for tried in word.tried}}
    if name.lower() in tried:
        return tried[name.lower()]
    if name.startswith("--"):
        return "Write a flag after its command, as in `limit 2GiB --grow`."
    near = nearest(name, [word.name for word in words]).strip()
    return paragraph((near, msg("`{help}` lists them.", help=HELP)))


def nearest(wrong: str, known: Iterable[str], tried: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a sentence with the known word that the wrong one may mean; else with all known words.

    Args:
        wrong: the unknown word.
        known: all known words.
        tried: known words by other words that may be written for them and do not look like them.
    """
    known = list(known)
    meant = {other: word for other, word in {**_FLAGS, **tried}.items() if word in known} | {one: one for one in known}
    near = difflib.get_close_matches(wrong.lower(), meant, n=1, cutoff=0.6)
    return f" Did you mean {meant[near[0]]!r}?" if near else f" There are: {', '.join(known)}." if known else ""


def offers(typed: Sequence[str], gpus: Callable[[], Sequence[str]], *more: str) -> list[str]:
    """Return what may follow in a policy.

    Args:
        typed: its tokens so far.
        gpus: returns the labels of the GPUs that can be named.
        more: what may follow a request besides its own values and flags.
    """
    request = " ".join(typed).rpartition(";")[2]
    tokens = request.replace(",", " ").lower().split()
    if not tokens:
        return [row.WORD.name for row in requests.REQUESTS]
    row = next((row for row in requests.REQUESTS if row.WORD.name == tokens[0]), None)
    if row is None:
        return []
    flags, last = {flag.name: flag for flag in row.WORD.flags}, tokens[-1].rstrip("=")
    if last in flags and flags[last].takes:
        return list(flags[last].values or gpus())
    if request.endswith("="):
        return list(SIZES)
    offered = [*row.offers(tokens[1:], gpus), *flags, *more]
    return [word for word in offered if word.lower() not in tokens]
