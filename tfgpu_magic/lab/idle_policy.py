"""The idle ladder: when a notebook's owner is told of idle GPU memory, and when it is parked or shut down. Pure.

No clock is read. Idle time is added up from looks, each of which stands for some seconds: a clock that is set, a
machine that sleeps, and a server that starts again can only make a step come later.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from tfgpu_magic.errors import PolicyError
from tfgpu_magic.ground.units import BINARY, parse_seconds

if TYPE_CHECKING:
    from tfgpu_magic.ground.rows import Table

Action: TypeAlias = Literal["", "tell", "park", "stop"]
"""Nothing; have its owner told; ask it to park itself; shut it down."""

LEAST = 256 * BINARY["MiB"]
"""Bytes from which on held memory counts."""
LONGEST_LOOK = 60.0
"""Seconds that a look stands for at the most."""
NOT_TODAY = 24 * 3600.0
"""Seconds by which *Not Today* puts all steps off."""
NEVER = "never"


class Rule(NamedTuple):
    """Seconds of idle time from which on each step is due; infinite is never."""

    notify: float = math.inf
    park: float = math.inf
    stop: float = math.inf


class IdleReading(NamedTuple):
    """What a look has seen of a notebook.

    Attributes:
        stands_for: the seconds that it stands for, at most those since the look before.
        held: bytes of GPU memory; None where any of it is unknown.
        used: whether a cell or anything else of it has run since the look before; None where that is unknown.
    """

    stands_for: float
    held: int | None
    used: bool | None


class IdleState(NamedTuple):
    """What is kept of a notebook from look to look.

    Attributes:
        idle: seconds for which it was seen to be idle.
        notify: whether its owner is to be told.
        told: how many these were when a page in sight was told; None while that is to come.
        rests: seconds that are left of *Not Today*.
        put_off: whether that was said; it can be once.
        asked: whether it was asked to park itself.
    """

    idle: float = 0.0
    notify: bool = False
    told: float | None = None
    rests: float = 0.0
    put_off: bool = False
    asked: bool = False

    def due(self, rule: Rule) -> Mapping[str, float]:
        """Return in how many seconds it is parked, and shut down after its owner was told, or is told now."""
        since = 0.0 if self.told is None else self.idle - self.told
        left = {"park": math.inf if self.asked else rule.park - self.idle, "stop": rule.stop - rule.notify - since}
        return {step: max(0.0, time) + self.rests for step, time in left.items() if time < math.inf}

    def after_shown(self) -> IdleState:
        """Return it after a page in sight was answered; unchanged if there is nothing to tell, or nothing new."""
        news = self.notify and self.told is None
        return self._replace(told=self.idle) if news else self

    def after_put_off(self) -> IdleState:
        """Return it with all steps put off; unchanged if its owner was not told, or has said so before."""
        put_off = self.told is not None and not self.put_off
        return self._replace(rests=NOT_TODAY, put_off=True) if put_off else self


def step(rule: Rule, now: IdleReading, kept: IdleState) -> tuple[Action, IdleState]:
    """Go on to a look, and return what is to be done, and what is to be kept.

    Any use begins anew, and nothing is done or counted while anything is unknown. Parking loses nothing, and waits for
    no page; between being told and being shut down lie at least the hours that the rule has between the two.

    Args:
        rule: the hours.
        now: the look.
        kept: what was kept of the look before.
    """
    if now.used or (now.held is not None and now.held < LEAST):
        return "", IdleState()
    passed = min(now.stands_for, LONGEST_LOOK)
    if kept.rests > 0:
        return "", kept._replace(rests=max(0.0, kept.rests - passed))
    if now.used is None or now.held is None or min(rule) == math.inf:
        return "", kept
    kept = kept._replace(idle=kept.idle + passed)
    if not kept.notify and kept.idle >= rule.notify:
        return "tell", kept._replace(notify=True)
    if not kept.asked and kept.idle >= rule.park:
        return "park", kept._replace(asked=True)
    if kept.told is not None and kept.idle - kept.told >= rule.stop - rule.notify:
        return "stop", kept
    return "", kept


def trouble(table: Table) -> str:
    """Return why a table does not show all that is on the GPUs, as it is now; empty where it does."""
    if table.error or not table.time or table.stale_since:
        return table.error or "there are no fresh figures of the GPUs"
    gpus = [row.gpu for row in table.gpus]
    flawed = next((f"GPU {gpu.label}: {gpu.error}" for gpu in gpus if gpu.error), "")
    silent = {gpu.label for gpu in gpus if not gpu.listed}
    untold = any(row.unlisted and row.process.gpu in silent for row in table.processes)
    return flawed or ("the driver does not name all processes" if untold else "")


def rule_of(table: Any, groups: Container[str]) -> Rule:
    """Return the rule of a user by the table `[idle]` of the administrator's file.

    Args:
        table: the table.
        groups: the names and numbers of the user's Unix groups; the first group of the table that is among them counts.

    Raises:
        PolicyError: anything in the table is wrong, of whatever group: then nothing of it is in force. `groups` raises
            it for a name that nobody has.
    """
    everybody = dict(entries(table, "[idle]"))
    rules = {"": everybody}
    for group, entry in entries(everybody.pop("groups", {}), "[idle] groups").items():
        rules[group] = everybody | entries(entry, f"[idle] groups.{group}")
    checked = {group: _rule(entry, f"[idle] groups.{group}" if group else "[idle]") for group, entry in rules.items()}
    own = [rule for group, rule in checked.items() if group and group in groups]  # each is looked up
    return own[0] if own else checked[""]


def entries(value: Any, where: str) -> dict[str, Any]:
    """Return a table of the file; raise `PolicyError` if it is none.

    Args:
        value: what the file has there.
        where: what it is called.
    """
    if not isinstance(value, dict):
        raise PolicyError(f"{where} is {value!r}, and has to be a table.")
    return value


def _rule(entry: Mapping[str, Any], where: str) -> Rule:
    if unknown := entry.keys() - set(Rule._fields):
        raise PolicyError(f"{where} has no {sorted(unknown)[0]!r}. It has notify, park, stop and groups.")
    rule = Rule(**{step: _time(value, f"{where} {step}") for step, value in entry.items()})
    if rule.notify >= rule.stop and rule.stop < math.inf:
        raise PolicyError(f"{where}: `stop` comes after `notify`, so that owners are told before.")
    if rule.park < math.inf and rule.park >= rule.stop:
        raise PolicyError(f"{where}: `stop` comes after `park`, so that what can be parked is not shut down.")
    return rule


def _time(value: Any, where: str) -> float:
    if value == NEVER:
        return math.inf
    if not isinstance(value, str):
        raise PolicyError(f'{where} is {value!r}. Write "2h", "30m" or "{NEVER}".')
    try:
        return parse_seconds(value)
    except PolicyError as error:
        raise PolicyError(f"{where}: {error}") from None
