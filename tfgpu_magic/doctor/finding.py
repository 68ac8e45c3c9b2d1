"""The findings of the checks as data: facts, and the outcome that they belong to. `doctor.answer` makes sentences."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

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
