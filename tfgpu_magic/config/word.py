"""What a word of `%tf_gpu` says of itself, and a line in which it is said, as data. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Word:
    """A word that `%tf_gpu` understands.

    Attributes:
        name: the word.
        usage: how it is written, a form each.
        meaning: what it does, for the help and for the table of the words in the documentation.
        flags: its flags, each with whether a value follows.
        offers: gives what may stand after the tokens that are said behind the word; it may ask for the labels of the
            GPUs. None where no value stands behind it.
        also: other ways to write the name; "" is the line without a word.
        tried: what people may write for it who know it by another name, in lower case.
        instead: a sentence for them.
        restart: whether `--restart` may stand beside it.
        answer: does what a line asks, and returns what is to be shown, if anything; None where it has no place in a
            line.
        above: what it does above a cell; None where it has no place there.
    """

    name: str
    usage: tuple[str, ...]
    meaning: str
    flags: tuple[tuple[str, bool], ...] = ()
    offers: Callable[[Sequence[str], Callable[[], Sequence[str]]], list[str]] | None = None
    also: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    instead: str = ""
    restart: bool = False
    answer: Callable[[Line], object] | None = None
    above: Above | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Every way to write its name."""
        return (self.name, *self.also)

    @property
    def forms(self) -> str:
        """A sentence with the forms in which it is written."""
        return " Write " + " or ".join(f"`%tf_gpu {form}`" for form in self.usage) + "."

    @property
    def alone(self) -> bool:
        """Whether nothing may stand behind it in a line."""
        return self.offers is None and not self.flags


@dataclass(frozen=True, slots=True)
class Above:
    """What a word does above a cell.

    Attributes:
        flags: its flags there.
        rest: what may follow them, in capitals as in the help; "" where nothing may.
        usage: a sentence with how it is written, for those who wrote it otherwise.
        meaning: the help's paragraph about it.
        offers: gives what may stand after the tokens that are said behind the word; it may ask for the labels of the
            GPUs, and for the notebook's names.
        prepare: makes what runs the cell, from the line, the cell's text and IPython's shell. What this raises is a
            mistake in the line; what the other raises is the cell's own.
    """

    flags: tuple[Flag, ...]
    rest: str
    usage: str
    meaning: str
    offers: Callable[[Sequence[str], Callable[[], Sequence[str]], Callable[[], Iterable[str]]], list[str]]
    prepare: Callable[[Line, str, Any], Callable[[], object]]


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag that may stand above a cell.

    Attributes:
        name: the flag.
        takes: the value that follows it, in capitals as in the help; "" where none does.
        meaning: what it does, for the help.
        values: values to offer.
        tried: what people may write for it that does not look like it.
    """

    name: str
    takes: str
    meaning: str
    values: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        """How it is written."""
        return f"{self.name} {self.takes}".rstrip()


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the magic, read once: without its comment, `--restart` apart.

    Attributes:
        name: its first word as it is written; "" where there is none.
        rest: what follows that.
        restart: whether `--restart` is said.
        word: the word that is meant.
        words: the table in which it was found.
    """

    name: str
    rest: str
    restart: bool
    word: Word
    words: tuple[Word, ...]

    @property
    def text(self) -> str:
        """The word and what follows it."""
        return f"{self.name} {self.rest}".strip()
