"""The findings of the checks: facts, and the outcome that they belong to; drawn in 80 columns, or as JSON to send."""

from __future__ import annotations

import json
import platform
import re
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tfgpu_magic._version import __version__
from tfgpu_magic.ground import phrases
from tfgpu_magic.ground.message import Fact, FrontEnd, Line, Message, Severity
from tfgpu_magic.ground.units import rounded

VERSION = 3
"""The version of the JSON: names and facts of findings stay what they are while it does."""
WIDTH = 80

_SEVERITY, _TITLE = 7, 13
"""The columns of a severity's word and of a check's title."""
_INDENT = 1 + _SEVERITY + 2 + _TITLE + 2
_PASTED = "    "
_COLOURS = {Severity.GOOD: "32", Severity.NOTE: "36", Severity.WARNING: "33", Severity.FAULT: "1;31"}
"""The colours of the words, as terminals number them (ECMA-48, SGR)."""


def outcome(name: str, severity: Severity, found: str, next: str = "") -> Message:  # noqa: A002
    """Return one of the messages of a check, declared at the top of its module, and called with its facts.

    Args:
        name: its name, after that of its check: ``driver.absent``.
        severity: how serious it is.
        found: what was found, with the names of facts in braces.
        next: what to do next, in the same way; empty where nothing need be done. Lines that begin with two spaces are
            to be pasted, and are shown as they are.

    Example:
        >>> LOST = outcome("gpus.lost", Severity.FAULT, "{gpus} are lost.")
        >>> LOST(gpus=["0", "1"]).facts
        {'gpus': ['0', '1']}
    """
    return Message(found, severity=severity, next=next, name=name)


class DoctorFrontEnd(FrontEnd):
    """The doctor's report: a size (``..._bytes``) has its unit, a list has commas, and what is unknown is called so."""

    def fact(self, name: str, fact: Fact) -> str:
        """Return a fact as text."""
        if fact is None or fact == "":
            return "unknown"
        if name.endswith("_bytes") and isinstance(fact, int):
            return rounded(fact)
        if isinstance(fact, (list, tuple)):
            return ", ".join(self.fact(name, one) for one in fact) or "none"
        return phrases.clean(str(fact), longest=_LONGEST_FACT)

    def found(self, finding: Message) -> str:
        """Return what was found, as a sentence or two."""
        return self.sentence(finding.without_next)

    def next(self, finding: Message) -> str:
        """Return what to do next; lines that are to be pasted begin with two spaces."""
        return self.sentence(finding._replace(template=""))


_LONGEST_FACT = 600
REPORT = DoctorFrontEnd()


def hide_homes(finding: Message, homes: Sequence[str]) -> Message:
    """Return the same finding with home directories written as ``~``."""
    return finding(**{name: _hide(fact, homes) for name, fact in finding.facts.items()})


def _hide(fact: Fact, homes: Sequence[str]) -> Fact:
    if isinstance(fact, str):
        for home in homes:
            fact = re.sub(rf"{re.escape(home)}(?![\w.-])", "~", fact)
        return fact
    if isinstance(fact, Message):  # a tuple, too
        return hide_homes(fact, homes)
    if isinstance(fact, Mapping):
        return {name: _hide(one, homes) for name, one in fact.items()}
    return [_hide(one, homes) for one in fact] if isinstance(fact, Sequence) and not isinstance(fact, Line) else fact


def text(title: str, findings: Sequence[Message], *, coloured: bool = False) -> str:
    """Return a check's findings as text, each with what to do next below it.

    Args:
        title: the check's.
        findings: what it has found.
        coloured: whether the words of severity have the colours of a terminal.
    """
    lines: list[str] = []
    for finding in findings:
        word = f"{finding.severity.value:<{_SEVERITY}}"
        shown = f"\x1b[{_COLOURS[finding.severity]}m{word}\x1b[0m" if coloured else word
        first, *more = _wrap(REPORT.found(finding))
        lines.append(f" {shown}  {title:<{_TITLE}}  {first}")
        lines += [" " * _INDENT + line for line in more]
        for line in REPORT.next(finding).splitlines():
            pasted = line.startswith("  ")
            lines += [_PASTED + line.strip()] if pasted else [" " * _INDENT + part for part in _wrap(line)]
        title = ""
    return "\n".join(lines)


def summary(findings: Iterable[Message]) -> str:
    """Return how many of the findings need attention, and how to send them."""
    counts = Counter(finding.severity for finding in findings)
    serious = (Severity.FAULT, Severity.WARNING, Severity.NOTE)
    counted = [_count(counts[severity], severity.value) for severity in serious]
    return f"{', '.join(counted)}. To send this to us:   tfgpu doctor --json > doctor.json"


def as_json(findings: Iterable[Message]) -> str:
    """Return findings as JSON."""
    rows = [
        {
            "name": finding.name,
            "severity": finding.severity.value,
            "found": REPORT.found(finding),
            "next": REPORT.next(finding),
            "facts": finding.facts,
        }
        for finding in findings
    ]
    made = {"version": VERSION, "tfgpu_magic": __version__, "host": platform.node(), "time": round(time.time())}
    return json.dumps({**made, "findings": rows}, indent=2)


def _wrap(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH - _INDENT, break_on_hyphens=False) or [""]


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
