"""The bound on the sum: what all processes of a user may hold together of each GPU, by the administrator's file.

It is counted from what every view shows, and enforced by nobody: `steps` and the exporter tell of it. Where the driver
limits the user's cgroup, nothing is counted.
"""

from __future__ import annotations

import contextlib
import math
import re
import threading
import time
from collections.abc import Callable, Container
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from tfgpu_magic import policy
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.lab import file
from tfgpu_magic.lab.ladder import entries
from tfgpu_magic.model.rows import Table, by_gpu
from tfgpu_magic.model.said import say
from tfgpu_magic.probe import within
from tfgpu_magic.units import BINARY, DECIMAL, LARGEST, rounded

NONE = "none"
READ_EVERY = 30.0
"""Seconds for which the file counts as read."""
READ_TIMEOUT = 0.25
"""Seconds to wait for the names of a user and of the user's groups: a directory of users may hang."""

_UNITS = {unit: size for unit, size in (BINARY | DECIMAL).items() if unit[0] in "MGT"}
_AMOUNT = re.compile(rf"(\d{{1,9}}(?:\.\d{{1,3}})?)\s?(%|{'|'.join(_UNITS)})", re.ASCII)
_hanging: list[threading.Thread] = []


class _Own:
    """This user's amount, and when it was read on the monotonic clock."""

    at: float = -math.inf
    amount: str = ""


_own = _Own()


class OverBound(NamedTuple):
    """What is held of a GPU beyond the bound.

    Attributes:
        held: the bytes that all of the user's processes hold there.
        bound: the most that they may.
    """

    held: int
    bound: int


@lru_cache(64)
def size(amount: str, total: int | None) -> int | None:
    """Return an amount of the file in bytes, in whole MiB as for `[limits]`; None if it is none, or not known.

    Args:
        amount: such as ``40%`` or ``32GiB``.
        total: bytes of the GPU; None if they are not known.
    """
    match = _AMOUNT.fullmatch(amount)
    unit = match and (_UNITS.get(match[2]) or (total and Fraction(total, 100)))
    return int(Fraction(match[1]) * unit) >> 20 << 20 if match and unit else None


def bound_of(table: Any, names: Container[str], groups: Container[str]) -> str:
    """Return the amount that the table `[bound]` has for a user; empty if it has none.

    Args:
        table: the table.
        names: the user's name and number.
        groups: the names and numbers of the user's groups; the first group of the table that is among them counts.

    Raises:
        PolicyError: anything in the table is wrong, of whatever user: then nothing of it is in force.
    """
    rest = dict(entries(table, "[bound]"))
    users, by_group = (
        {
            name: _amount(one, f"[bound] {kind}.{name}")
            for name, one in entries(rest.pop(kind, {}), f"[bound] {kind}").items()
        }
        for kind in ("users", "groups")
    )
    everybody = _amount(rest, "[bound]")
    found = next((amount for name, amount in users.items() if name in names), "")
    found = found or next((amount for name, amount in by_group.items() if name in groups), "")
    found = found or ("" if "0" in names else everybody)
    return "" if found == NONE else found


def _amount(entry: Any, where: str) -> str:
    for name, value in entries(entry, where).items():
        if name != "hard":
            raise PolicyError(f"{where} has no {name!r}. It has hard, and [bound] has users and groups.")
        found = size(value, 100 << 20) if isinstance(value, str) else None  # so that 1% is a MiB
        if value != NONE and not (found and found <= (100 << 20 if "%" in value else LARGEST)):
            raise PolicyError(f'{where}: hard is {value!r}. Write "40%", "32GiB" or "{NONE}".')
    return str(entry.get("hard", ""))


def of_user(user: str | None = None, read: Callable[[str], Any] = file.table) -> str:
    """Return the amount of a user, by default of this process's.

    Args:
        user: the user's name.
        read: returns a table of the administrator's file by its name.

    Raises:
        PolicyError: the file is wrong.
        KeyError: no user has that name here.
    """
    table = read("bound")
    return "" if table is None else bound_of(table, file.names_of(user), file.groups_of(user))


def over(table: Table, amount: str) -> dict[str, OverBound]:
    """Return the GPUs of which this user holds more than an amount; not one that is limited, or of unknown bytes."""
    if not amount:
        return {}
    found, rows = {}, by_gpu(row for row in table.processes if row.who in ("this", "mine"))
    for gpu in table.gpus:
        held = [row.held for row in rows.get(gpu.gpu, ())]
        known, most = [one for one in held if one is not None], size(amount, gpu.total)
        if most and gpu.limit is None and len(known) == len(held) and sum(known) > most:
            found[gpu.gpu] = OverBound(sum(known), most)
    return found


def sentence(gpu: str, one: OverBound) -> str:
    """Return what is held beyond the bound, as a sentence for the user."""
    return say(
        "Your processes together hold {held} of GPU {gpu}. {file} allows {bound}.",
        held=rounded(one.held),
        gpu=gpu,
        file=policy.FILE,
        bound=rounded(one.bound),
    )


def notes(table: Table) -> list[str]:
    """Return what each view says below its table."""
    if time.monotonic() - _own.at > READ_EVERY:
        within(READ_TIMEOUT, _read, _hanging)
    return [sentence(*one) for one in over(table, _own.amount).items()]


def _read() -> None:
    """Read this user's amount; a late answer counts as well, from then on."""
    amount = ""
    with contextlib.suppress(PolicyError):  # a server's log and the doctor say what is wrong
        amount = of_user()
    _own.at, _own.amount = time.monotonic(), amount
