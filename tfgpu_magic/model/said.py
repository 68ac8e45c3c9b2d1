"""Sentences of the driver's and the board's: texts, in which no front end words anything; all others are messages."""

from __future__ import annotations

from collections.abc import Iterable


def say(template: str, /, **fields: object) -> str:
    """Make a sentence.

    Args:
        template: the sentence, with the names of the fields in braces.
        fields: what stands in their places.

    Example:
        >>> say("{name}'s {command}", name="train.ipynb", command="python3")
        "train.ipynb's python3"
    """
    return template.format(**fields)


def in_a_row(sentences: Iterable[str]) -> str:
    """Return those sentences that are not empty, one after the other."""
    return " ".join(filter(None, sentences))


def in_commas(texts: Iterable[str]) -> str:
    """Return texts with commas between them."""
    return ", ".join(texts)
