"""Draws the findings of `tfgpu doctor`: for people in 80 columns, and as JSON to be sent with a report."""

from __future__ import annotations

import json
import platform
import textwrap
import time
from collections import Counter
from typing import TYPE_CHECKING

from tfgpu_magic._version import __version__
from tfgpu_magic.doctor.finding import Severity
from tfgpu_magic.model import phrases

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfgpu_magic.doctor.finding import Finding

VERSION = 2
"""The version of the JSON: names and facts of findings stay what they are while it does."""
WIDTH = 80

_SEVERITY, _TITLE = 7, 13
"""The columns of a severity's word and of a check's title."""
_INDENT = 1 + _SEVERITY + 2 + _TITLE + 2
_PASTED = "    "
_COLOURS = {Severity.GOOD: "32", Severity.NOTE: "36", Severity.WARNING: "33", Severity.FAULT: "1;31"}
"""The colours of the words, as terminals number them (ECMA-48, SGR)."""


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
        first, *more = _wrapped(found(finding))
        lines.append(f" {shown}  {title:<{_TITLE}}  {first}")
        lines += [" " * _INDENT + line for line in more]
        for line in what_next(finding).splitlines():
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
            "found": found(finding),
            "next": what_next(finding),
            "facts": finding.facts,
        }
        for finding in findings
    ]
    made = {"version": VERSION, "tfgpu_magic": __version__, "host": platform.node(), "time": round(time.time())}
    return json.dumps({**made, "findings": rows}, indent=2)


def found(finding: Finding) -> str:
    """Return what was found, as a sentence or two."""
    return finding.outcome.found.format_map(phrases.words(finding.facts))


def what_next(finding: Finding) -> str:
    """Return what to do next; lines that are to be pasted begin with two spaces."""
    return finding.outcome.next.format_map(phrases.words(finding.facts))


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH - _INDENT, break_on_hyphens=False) or [""]


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
