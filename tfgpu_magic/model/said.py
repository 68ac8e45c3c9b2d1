"""Sentences that know what they were made of, so that a page can put them in its own language.

To everything else a `Said` is its English text, which stands once, where it is made. Its template is the key of a
page's translations, as in gettext; `scripts/_said.py` lists all templates for JupyterLab's extractor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any, TypeAlias

Words: TypeAlias = "list[str | Words]"
"""A template, in which ``%1`` is the first of the fields that follow: texts, which may be hostile, or sentences."""


class Said(str):
    """An English text, with its template and fields in `words`; without these it is only a text."""

    __slots__ = ("words",)

    words: Words

    def __str__(self) -> str:
        return self  # so that what `str` makes of an error is a sentence too

    def changed(self, change: Callable[[str], str]) -> Said:
        """Return the sentence with each text among its fields changed."""
        return of(_changed(self.words, change))


def say(template: str, /, **fields: object) -> Said:
    """Make a sentence.

    Args:
        template: English, with the names of the fields in braces. It has no other braces, and no ``%`` before a digit.
        fields: texts, whole numbers or sentences.

    Example:
        >>> say("{name}'s {command}", name="train.ipynb", command="python3").words
        ["%1's %2", 'train.ipynb', 'python3']
    """
    return filled(template, fields)


def filled(template: str, fields: Mapping[str, object]) -> Said:
    """Make a sentence, as `say`, of a template that stands in a table."""
    text, names = positional(template)
    words: Words = [text, *(_words(fields[name]) for name in names)]
    return _said(words, [str(fields[name]) for name in names])


def positional(template: str) -> tuple[str, list[str]]:
    """Return a template with the places of its fields in place of their names, and the names in this order."""
    places = _Places()
    return template.format_map(places), list(places)


def in_a_row(sentences: Iterable[str]) -> str:
    """Return sentences one after the other."""
    return reduce(lambda one, other: say("{one} {other}", one=one, other=other) if one else other, sentences, "")


def in_lines(sentences: Iterable[str]) -> str:
    """Return sentences, a line each."""
    return reduce(lambda one, other: say("{one}\n{other}", one=one, other=other) if one else other, sentences, "")


def in_commas(texts: Iterable[str]) -> str:
    """Return texts with commas between them."""
    return reduce(lambda one, other: say("{one}, {other}", one=one, other=other) if one else other, texts, "")


def listed(texts: Iterable[str]) -> str:
    """Return texts as people list them: ``one, two and three``."""
    *most, last = texts
    return say("{one} and {other}", one=in_commas(most), other=last) if most else last


def with_words(fields: Mapping[str, Any], name: str = "said") -> dict[str, Any]:
    """Return the fields of a message; if texts among them are sentences, with their words, by the same names."""
    words = {key: _of_field(value) for key, value in fields.items() if _of_field(value)}
    return {**fields, name: words} if words else dict(fields)


def known(text: str, words: Any) -> str:
    """Return a text as the sentence that has these words; itself if it is none, or another version's."""
    try:
        found = of(words)
    except (TypeError, ValueError, LookupError):
        return text
    return found if found == text else text


def of(words: Words) -> Said:
    """Return the sentence that has these words.

    Raises:
        ValueError: a template has characters that none of ours has, such as those that control a terminal.
    """
    if not str(words[0]).replace("\n", "").isprintable():
        raise ValueError(f"no sentence's template: {words[0]!r}")
    return _said(words, [one if isinstance(one, str) else of(one) for one in words[1:]])


def _said(words: Words, texts: list[str]) -> Said:
    """Return the sentence that has these words, of whose fields these are the texts."""
    made = Said(re.sub(r"%(\d)", lambda place: texts[int(place[1]) - 1], str(words[0])))
    made.words = words
    return made


def _changed(words: Words, change: Callable[[str], str]) -> Words:
    template, *fields = words
    return [template, *(change(one) if isinstance(one, str) else _changed(one, change) for one in fields)]


class _Places(dict[str, str]):
    """The places of a template's fields, in the order in which it names them."""

    def __missing__(self, name: str) -> str:
        self[name] = place = f"%{len(self) + 1}"
        return place


def _of_field(value: Any) -> Words | None:
    """Return the words of a sentence, or of a list that has any: there, a text is its own; None of all else."""
    if isinstance(value, Said):
        return value.words
    sentences = isinstance(value, list) and any(isinstance(one, Said) for one in value)
    return [_words(one) for one in value] if sentences else None


def _words(field: object) -> str | Words:
    return field.words if isinstance(field, Said) else str(field)
