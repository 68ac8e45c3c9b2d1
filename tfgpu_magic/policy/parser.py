"""Text to policy: the parser of `%tf_gpu`, whose words are defined in `requests`. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tfgpu_magic import units
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.policy import requests
from tfgpu_magic.policy.flags import part
from tfgpu_magic.policy.policy import Policy
from tfgpu_magic.policy.request import Memory, Request
from tfgpu_magic.policy.requests.growth import NO_LIMIT
from tfgpu_magic.policy.vocabulary import find, nearest, usage
from tfgpu_magic.policy.word import Word

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
        raise PolicyError("Nothing was asked. The words are:\n" + usage([row.WORD for row in requests.REQUESTS]))
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
    if re.search(rf"^\s*(?:{_NAME})\s*,|,\s*(?:{_NAME})\b", text, flags=re.IGNORECASE):
        raise PolicyError("Separate policies with `;` and not with a comma, as in `pick; limit 2GiB`.")
    text = re.sub(r"\s*=\s*", "=", text)
    text = re.sub(rf"(?<=[0-9])\s+(?=(?:%|{_UNIT})(?:[\s,]|$))", "", text, flags=re.IGNORECASE)
    if comma := re.search(rf"(?<![0-9.])[0-9]+,[0-9]+(?:%|{_UNIT})(?=[\s,]|$)", text, flags=re.IGNORECASE):
        raise PolicyError(f"{comma[0]!r} has a comma. Write {comma[0].replace(',', '.')}.")
    return text


def _sort(word: Word, tokens: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Separate the values from the flags, each flag with its value ("" where it has none)."""
    lacks = {flag: f"{flag} of what? It needs a value." if takes else "" for flag, takes in word.flags}
    values, flags = part(tokens, lacks, word.forms)
    for flag in (value.partition("=")[0] for value in values if value.startswith("--")):
        raise PolicyError(f"{word.name!r} has no flag {flag!r}.{_apart(flag) or nearest(flag, lacks)}{word.forms}")
    return values, flags


def _apart(flag: str) -> str:
    """Return a sentence on a flag that only one word can have; nothing where it is none."""
    known = {name: (row.WORD, why) for row in requests.REQUESTS for name, why in row.WORD.apart}
    return f" It goes with `{known[flag][0].name}` alone. {known[flag][1]}" if flag in known else ""
