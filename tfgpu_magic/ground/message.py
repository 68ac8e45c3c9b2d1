"""A message: a sentence with its facts, how serious it is, and lines to try next; a front end words it where it shows.

Only a front end knows how a line is written where it stands: `%tf_gpu`, `%gpu`, above a cell, in a shell. A message
names its lines as data, so nobody searches a finished sentence for them, or replaces anything in one.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

RESTART = "--restart"
"""The flag of the magic that restarts this kernel when it is too late, and applies the policy in the new one."""
WAIT = "--wait"
"""The flag that waits for room on the GPUs if other processes hold too much of them."""


class Severity(enum.Enum):
    """How serious a message is, from the least to the most."""

    value: Literal["good", "note", "warning", "fault"]

    GOOD = "good"
    """It is as it should be."""
    NOTE = "note"
    """It is worth knowing, and nothing need be done."""
    WARNING = "warning"
    """It works less well than it could, or will stop working."""
    FAULT = "fault"
    """It does not work."""


class Line(NamedTuple):
    """What people type: a line of the magic or a shell, or a part of one, which each front end writes in its own way.

    Attributes:
        words: its words without the magic.
        kind: ``line`` is a line that a sentence names, ``above`` one that stands above a cell; ``try`` is one to run in
            place of the line that was refused. ``help`` explains the words, ``magic`` is the magic's name,
            ``shell`` is a line of `tfgpu`, and ``setting`` sets an environment variable.
        restarts: whether it restarts the kernel.
        waits: whether it waits for room.
    """

    words: str = ""
    kind: Literal["line", "above", "try", "help", "magic", "shell", "setting"] = "line"
    restarts: bool = False
    waits: bool = False


Fact: TypeAlias = "Message | Line | str | int | float | bool | Sequence[Fact] | Mapping[str, Fact] | None"
"""What a message tells; None is unknown. A size is in bytes, and its name ends in ``_bytes``."""

HELP, MAGIC = Line(kind="help"), Line(kind="magic")

_FIELD = re.compile(r"\{(\w+)\}")


class Message(NamedTuple):  # no dataclass, whose import takes a third of what a collector needs to start
    """A sentence or more, and what to do next.

    Attributes:
        template: what is the case, with the names of facts in braces.
        facts: the facts, by name.
        severity: how serious it is.
        next: what to do next, written as `template` and right behind it; empty if there is nothing to say.
        name: the name of what was found, for programs: ``driver.absent``; empty for most messages.
    """

    template: str
    facts: Mapping[str, Fact] = {}
    severity: Severity = Severity.NOTE
    next: str = ""
    name: str = ""

    def __hash__(self) -> int:
        return hash((self.template, self.next))

    def __call__(self, **facts: Fact) -> Message:
        """Return the message with these facts, which are at least those that its sentences name."""
        return self._replace(facts=facts)

    def __str__(self) -> str:
        return IPYTHON.text(self)

    def __repr__(self) -> str:
        return repr(str(self))

    @property
    def without_next(self) -> Message:
        """The message without what to do next."""
        return self._replace(next="")

    @property
    def ways(self) -> Message:
        """What to do next."""
        return Message(self.next, self.facts)

    @property
    def tries(self) -> tuple[Line, ...]:
        """The lines that can be run in place of the one that was refused, the nearest first."""
        return tuple(part for part in IPYTHON.parts(self) if isinstance(part, Line) and part.kind == "try")

    def with_tries(self, lead: str, tries: Iterable[object], *, restarts: bool = False) -> Message:
        """Return the message with lines to try next; without any, the message as it is.

        Args:
            lead: the text that introduces them.
            tries: the words of each, the nearest first.
            restarts: whether each restarts the kernel.
        """
        lines = [Line(str(words), "try", restarts) for words in tries]
        return self.with_next(msg("{lead}{lines}", lead=lead, lines=join("\n  ", lines))) if lines else self

    def with_wait(self, words: object) -> Message:
        """Return the message with a line that waits for room, behind those that it has."""
        line = Line(str(words), "try", waits=True)
        return self.with_next(msg("{before}\nWaits for room:\n  {line}", before=self.ways, line=line))

    def with_next(self, next: Message) -> Message:  # noqa: A002
        """Return the message with what to do next."""
        return self._replace(next="{next}", facts={**self.facts, "next": next})


class FrontEnd:
    """A place where messages are shown, and how lines are typed there: here in IPython.

    Args:
        magic: the name of the magic.
        above: the line above a cell for whose policy others can be tried; empty if it is no cell.
    """

    def __init__(self, magic: str = "tf_gpu", above: str = "") -> None:
        self.magic, self._above = magic, above

    def line(self, line: Line) -> str:
        """Return a line as it is typed here."""
        start = self._above if self._above and line.kind == "try" else f"%{self.magic}"
        words = " ".join(filter(None, [line.words, RESTART * line.restarts, WAIT * line.waits]))
        match line.kind:
            case "above":
                return f"%%{self.magic} {words}"
            case "help":
                return f"%{self.magic}?"
            case "magic":
                return f"%{self.magic}"
            case "shell":
                return f"!tfgpu {words}"
            case "setting":
                return f"%env {words}"
            case _:
                return f"{start} {words}"

    def fact(self, name: str, fact: Fact) -> str:
        """Return a fact that is neither a message nor a line as text."""
        del name
        return str(fact)

    def parts(self, message: Message) -> Iterator[str | Line]:
        """Yield the pieces of a message in order: texts, and between them the lines."""
        for number, piece in enumerate(_FIELD.split(message.template + message.next)):
            if number % 2 == 0:
                yield from [piece] if piece else []
            elif isinstance(fact := message.facts[piece], Message):
                yield from self.parts(fact)
            else:
                yield fact if isinstance(fact, Line) else self.fact(piece, fact)

    def clickable(self, message: Message) -> Iterator[str | dict[str, object]]:
        """Yield the pieces of a message in order: texts, and between them the lines to try, as JSON has them."""
        for part in self.parts(message):
            if isinstance(part, Line) and part.kind in ("try", "shell"):
                yield {"line": self.line(part), "restarts": part.restarts}
            else:
                yield self.line(part) if isinstance(part, Line) else part

    def sentence(self, message: Message) -> str:
        """Return a message as text, without a word on how serious it is."""
        return "".join(self.line(part) if isinstance(part, Line) else part for part in self.parts(message))

    def text(self, message: Message) -> str:
        """Return a message as text; a warning says that it is one."""
        head = "Warning: " if message.severity is Severity.WARNING else ""
        return f"{head}{self.sentence(message)}"


IPYTHON = FrontEnd()
"""A notebook or a session, and code: `str` of a message is what is shown there."""


def msg(template: str, /, **facts: object) -> Message:
    """Return a message.

    Args:
        template: the sentence, with the names of the facts in braces.
        facts: messages, lines, and what its text stands for.

    Example:
        >>> str(msg("{name} says {line}.", name="train.ipynb", line=Line("limit 2GiB")))
        'train.ipynb says %tf_gpu limit 2GiB.'
    """
    kept = {name: fact if isinstance(fact, Message | Line) else str(fact) for name, fact in facts.items()}
    return Message(template, kept)


def warning(template: str, /, **facts: object) -> Message:
    """Return a message that is a warning; its front end says so."""
    return msg(template, **facts)._replace(severity=Severity.WARNING)


def join(separator: str, parts: Iterable[Message | Line | str | None]) -> Message:
    """Return as one message those parts that are neither None nor empty."""
    kept = {f"part{number}": part for number, part in enumerate(part for part in parts if part)}
    return msg(separator.join(f"{{{name}}}" for name in kept), **kept)


def paragraph(sentences: Iterable[Message | str | None]) -> Message:
    """Return sentences one after the other, without those that are None or empty."""
    return join(" ", sentences)


def join_lines(sentences: Iterable[Message | str | None]) -> Message:
    """Return sentences, a line each."""
    return join("\n", sentences)


def join_commas(texts: Iterable[Message | str]) -> Message:
    """Return texts with commas between them."""
    return join(", ", texts)


def format_list(texts: Iterable[Message | str]) -> Message:
    """Return texts as people list them: ``one, two and three``."""
    *most, last = texts
    return msg("{most} and {last}", most=join_commas(most), last=last) if most else join("", [last])
