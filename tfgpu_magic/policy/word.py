"""Descriptions of a command, of its flags and of a line in which it stands, as data. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from tfgpu_magic.errors import PolicyError
from tfgpu_magic.ground.message import Line, Message, join, msg, paragraph

Magic: TypeAlias = Literal["tf_gpu", "gpu"]
"""The magics, by name: for TensorFlow, and for every framework."""


class Word(NamedTuple):
    """The description of a command of `%tf_gpu`, of `tfgpu`, or of both.

    What it does in a notebook is in a module of its own, which is imported when the word is said or completed:

    - ``run(line)`` does what a line asks, and returns what is to be shown, if anything.
    - ``completions(tokens, gpus)`` returns what may follow the tokens behind a word that takes any; it may call for the
      labels of the GPUs.
    - ``prepare(line, cell, shell)`` returns the function that runs the cell below a word that may stand above one. What
      `prepare` raises is a mistake in the line; what the function raises is the cell's own error.

    Attributes:
        name: the word.
        usage: the forms in which it is written in a notebook; empty if it has no place there.
        meaning: what it does, for the help and for the table of the words in the documentation.
        group: the heading below which both list it: what people want who look for it.
        flags: its flags in a line.
        apart: those of its flags that other policies cannot have, each with the reason, one sentence.
        takes: whether a value may stand behind it.
        also: other ways to write the name; "" is the line without a word.
        tried: other names that people may write for it, in lower case.
        instead: the answer to those, one sentence.
        restart: whether it is a policy, beside which `--restart` may stand.
        above: how it stands above a cell; None if it has no place there.
        shell: how `tfgpu` has it; None if it has no place there.
        home: the module in which its functions are; empty if that is the one of its name in `words`.
    """

    name: str
    usage: tuple[str, ...] = ()
    meaning: str = ""
    flags: tuple[Flag, ...] = ()
    apart: tuple[tuple[str, str], ...] = ()
    takes: bool = False
    also: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    instead: Message | str = ""
    restart: bool = False
    above: CellForm | None = None
    shell: ShellForm | None = None
    home: str = ""
    group: str = "More"

    @property
    def names(self) -> tuple[str, ...]:
        """Every way to write its name."""
        return (self.name, *self.also)

    @property
    def forms(self) -> Message:
        """A sentence with the forms in which it is written."""
        if self.above is not None:
            return self.above.usage
        forms = (msg("`{form}`", form=Line(form)) for form in self.usage)
        return msg("Write {forms}.", forms=join(" or ", forms))

    def error(self, text: Message | str) -> PolicyError:
        """Return the error for a line that is wrong as the text says; the error adds how the word is written."""
        return PolicyError(paragraph((text, self.forms)))

    @property
    def alone(self) -> bool:
        """Whether nothing may stand behind it in a line."""
        return not (self.takes or self.flags)


class CellForm(NamedTuple):
    """How a command stands above a cell.

    Attributes:
        flags: its flags there.
        rest: what may follow them, in capitals as in the help; "" if nothing may. POLICY is a policy.
        usage: a sentence on how it is written, for error messages.
        meaning: the help's paragraph about it.
    """

    flags: tuple[Flag, ...]
    rest: str
    usage: Message
    meaning: str


class ShellForm(NamedTuple):
    """How `tfgpu` has a command.

    Attributes:
        usage: what follows the name.
        meaning: what it does.
        group: the heading below which the help and the documentation list it.
        flags: its flags.
        rest: what has to follow them, as in `CellForm`.
        as_word: whether it prints what the word shows in a notebook; if not, a module of its name in `command` does it.
    """

    usage: str
    meaning: str
    group: str
    flags: tuple[Flag, ...] = ()
    rest: str = ""
    as_word: bool = False

    @property
    def takes_program(self) -> bool:
        """Whether a program and its arguments follow behind ``--``."""
        return " -- " in self.usage


class Flag(NamedTuple):
    """A flag of a command.

    Attributes:
        name: the flag.
        takes: the value that follows it, in capitals as in the help; "" if none does. NAMES are names of the notebook,
            with commas; what ends with dots takes all values that follow. What is in brackets may be left out: it is
            then the first of `values`.
        meaning: what it does, for the help; "" hides it there.
        values: values to offer.
        tried: other flags that people may write for it and that do not look like it.
    """

    name: str
    takes: str = ""
    meaning: str = ""
    values: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        """How it is written."""
        return f"{self.name} {self.takes}".rstrip()


class ParsedLine(NamedTuple):
    """A parsed line of the magic, without its comment, and with `--restart` and a policy's `--wait` taken out.

    Or it is a line of `tfgpu`.

    Attributes:
        name: its first word as it is written; "" if there is none.
        rest: what follows that, as text.
        restart: whether `--restart` is given.
        word: the word that is meant.
        magic: the magic whose line it is: `tf_gpu`, or `gpu` for every framework.
        flags: the flags that are given, each with its value ("" if it takes none); those of a policy are left in it.
        values: what else follows the name, one by one.
        program: in a shell, the program to run and its arguments.
    """

    name: str
    rest: str
    restart: bool
    word: Word
    magic: Magic = "tf_gpu"
    flags: Mapping[str, str] = MappingProxyType({})
    values: tuple[str, ...] = ()
    program: tuple[str, ...] = ()

    @property
    def frameworks(self) -> Literal["tensorflow", "all"]:
        """For which frameworks its words are."""
        return "all" if self.magic == "gpu" else "tensorflow"

    @property
    def text(self) -> str:
        """The word and what follows it."""
        return f"{self.name} {self.rest}".strip()
