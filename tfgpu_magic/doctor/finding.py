"""The findings of the checks: facts, and the outcome that they belong to; drawn in 80 columns, or as JSON to send."""

from __future__ import annotations

import enum
import json
import platform
import re
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tfgpu_magic._version import __version__
from tfgpu_magic.model import phrases

Fact: TypeAlias = "str | int | float | bool | Sequence[Fact] | Mapping[str, Fact] | None"
"""What a finding tells, as JSON has it. None is unknown; a size is in bytes, and its name ends in ``_bytes``."""


class Severity(enum.Enum):
    """How serious a finding is, from the least to the most."""

    GOOD = "good"
    """It is as it should be."""
    NOTE = "note"
    """It is worth knowing, and nothing need be done."""
    WARNING = "warning"
    """It works less well than it could, or will stop working."""
    FAULT = "fault"
    """It does not work."""


VERSION = 3
"""The version of the JSON: names and facts of findings stay what they are while it does."""
WIDTH = 80

_SEVERITY, _TITLE = 7, 13
"""The columns of a severity's word and of a check's title."""
_INDENT = 1 + _SEVERITY + 2 + _TITLE + 2
_PASTED = "    "
_COLOURS = {Severity.GOOD: "32", Severity.NOTE: "36", Severity.WARNING: "33", Severity.FAULT: "1;31"}
"""The colours of the words, as terminals number them (ECMA-48, SGR)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One of the things that a check may find, declared at the top of its module.

    Attributes:
        name: its name, after that of its check: ``driver.absent``.
        severity: how serious it is.
        found: what was found, with the names of facts in braces.
        next: what to do next, in the same way; empty where nothing need be done. Lines that begin with two spaces are
            to be pasted, and are shown as they are.

    Example:
        >>> LOST = Outcome("gpus.lost", Severity.FAULT, "{gpus} are lost.")
        >>> LOST(gpus=["0", "1"]).facts
        {'gpus': ['0', '1']}
    """

    name: str
    severity: Severity
    found: str
    next: str = ""

    def __call__(self, **facts: Fact) -> Finding:
        """Return a finding of this outcome; the facts are at least those that its sentences name."""
        return Finding(self, facts)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check has found.

    Attributes:
        outcome: which of the check's outcomes it is.
        facts: what it tells, by name.
    """

    outcome: Outcome
    facts: Mapping[str, Fact]

    @property
    def severity(self) -> Severity:
        """How serious it is."""
        return self.outcome.severity

    @property
    def found(self) -> str:
        """What was found, as a sentence or two."""
        return self.outcome.found.format_map(phrases.words(self.facts))

    @property
    def next(self) -> str:
        """What to do next; lines that are to be pasted begin with two spaces."""
        return self.outcome.next.format_map(phrases.words(self.facts))

    def without(self, homes: Sequence[str]) -> Finding:
        """Return the same finding with home directories written as ``~``."""
        return Finding(self.outcome, {name: _without(fact, homes) for name, fact in self.facts.items()})


def _without(fact: Fact, homes: Sequence[str]) -> Fact:
    if isinstance(fact, str):
        for home in homes:
            fact = re.sub(rf"{re.escape(home)}(?![\w.-])", "~", fact)
        return fact
    if isinstance(fact, Mapping):
        return {name: _without(one, homes) for name, one in fact.items()}
    return [_without(one, homes) for one in fact] if isinstance(fact, Sequence) else fact


def text(title: str, findings: Sequence[Finding], *, coloured: bool = False) -> str:
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
        first, *more = _wrapped(finding.found)
        lines.append(f" {shown}  {title:<{_TITLE}}  {first}")
        lines += [" " * _INDENT + line for line in more]
        for line in finding.next.splitlines():
            pasted = line.startswith("  ")
            lines += [_PASTED + line.strip()] if pasted else [" " * _INDENT + part for part in _wrapped(line)]
        title = ""
    return "\n".join(lines)


def summary(findings: Iterable[Finding]) -> str:
    """Return how many of the findings need attention, and how to send them."""
    counts = Counter(finding.severity for finding in findings)
    serious = (Severity.FAULT, Severity.WARNING, Severity.NOTE)
    counted = [_count(counts[severity], severity.value) for severity in serious]
    return f"{', '.join(counted)}. To send this to us:   tfgpu doctor --json > doctor.json"


def as_json(findings: Iterable[Finding]) -> str:
    """Return findings as JSON."""
    rows = [
        {
            "name": finding.outcome.name,
            "severity": finding.severity.value,
            "found": finding.found,
            "next": finding.next,
            "facts": finding.facts,
        }
        for finding in findings
    ]
    made = {"version": VERSION, "tfgpu_magic": __version__, "host": platform.node(), "time": round(time.time())}
    return json.dumps({**made, "findings": rows}, indent=2)


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH - _INDENT, break_on_hyphens=False) or [""]


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
