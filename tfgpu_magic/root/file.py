"""The table `[limits]` of the administrator's file: read only as root wrote it, and taken whole or not at all."""

from __future__ import annotations

import importlib
import os
import re
import stat
import sys
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from tfgpu_magic.root import trust

toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
FILE = Path("/etc/tfgpu_magic.toml")
LARGEST = 64 * 1024  # bytes that the file may have
UNLIMITED = 2**64 - 1  # the hard limit that is none: NVML_DEVICE_MEMORY_LIMIT_MAX

_UNITS = {"MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_AMOUNT = re.compile(rf"(\d{{1,9}}(?:\.\d{{1,3}})?)\s?(%|{'|'.join(_UNITS)})", re.ASCII)


class Mistake(Exception):
    """The file cannot be used; the text says why, as a sentence."""


class Limits(NamedTuple):
    """What is said of a user, a group or a cgroup: what is guaranteed, and the most; empty is not said."""

    soft: str = ""
    hard: str = ""

    def in_bytes(self, total: int) -> tuple[int, int]:
        """Return both, of a GPU with so many bytes; the soft limit is at most the hard one."""
        hard = size(self.hard, total) or UNLIMITED
        return min(size(self.soft, total), hard), hard


class Rules(NamedTuple):
    """The whole table; users and groups by name or number, paths by a cgroup's folder."""

    everybody: Limits = Limits()
    users: Mapping[str, Limits] = {}
    groups: Mapping[str, Limits] = {}
    paths: Mapping[str, Limits] = {}

    def of(self, names: frozenset[str], groups: frozenset[str]) -> Limits:
        """Return a user's limits: each as the user's entry says, else the first group's, else, but for root, all's."""
        own = next((limits for name, limits in self.users.items() if name in names), Limits())
        group = next((limits for name, limits in self.groups.items() if name in groups), Limits())
        all_ = Limits() if "0" in names else self.everybody
        return Limits(own.soft or group.soft or all_.soft, own.hard or group.hard or all_.hard)


def size(amount: str, total: int) -> int:
    """Return an amount of the file in bytes, of a GPU with so many: whole MiB, as `nvidia-smi` sets them; 0 if none."""
    match = _AMOUNT.fullmatch(amount)
    exact = Fraction(match[1]) * _UNITS.get(match[2], Fraction(total, 100)) if match else 0
    return int(exact) >> 20 << 20


def read(path: Path) -> bytes:
    """Return what the file has, nothing if there is none; raise `Mistake` if root is not alone to write it."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or not trust.is_roots(found):
                raise Mistake(f"{path} is not root's alone: chown root:root {path}; chmod 644 {path}")
            if len(text := file.read(LARGEST + 1)) > LARGEST:
                raise Mistake(f"{path} has more than {LARGEST // 1024} KiB.")
            return text
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise Mistake(f"{path} is a link, or cannot be read: {error.strerror}.") from error


def parse(text: bytes) -> Rules | None:
    """Return the rules, None if there is no table `[limits]`; raise `Mistake` if anything in it is wrong."""
    try:
        table = toml.loads(text.decode()).get("limits")
    except (ValueError, RecursionError) as error:  # of tables in tables in tables
        raise Mistake(f"It is no TOML: {error}") from error
    if table is None:
        return None
    _table(table, "limits")
    tables = {kind: _table(table.pop(kind, {}), kind) for kind in Rules._fields[1:]}
    users, groups, paths = (
        {name: _limits(one, f"limits.{kind}.{name}") for name, one in entries.items()}
        for kind, entries in tables.items()
    )
    return Rules(_limits(table, "limits"), users, groups, {str(Path(name)): one for name, one in paths.items()})


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Mistake(f"In [limits], {where} is {value!r}, and has to be a table.")
    return value


def _limits(entry: Any, where: str) -> Limits:
    whole = 100 << 20  # so that 1% is a MiB
    for name, value in _table(entry, where).items():
        if name not in Limits._fields:
            raise Mistake(f"{where}.{name} is no limit. There are soft, hard, and the tables users, groups and paths.")
        bound = whole if isinstance(value, str) and "%" in value else 2**50
        if value != "none" and not (isinstance(value, str) and 0 < size(value, whole) <= bound):
            raise Mistake(f'{where}.{name} = {value!r} is no amount. Write "40%", "32GiB" or "none".')
    return Limits(**entry)
