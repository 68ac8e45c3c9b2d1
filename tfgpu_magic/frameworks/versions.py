"""Which version of a framework is installed, found without importing it."""

from __future__ import annotations

import importlib.util
import re
import sys

_found: dict[str, tuple[int, ...]] = {}
"""The versions that were found. What is not there may be installed later, by `%pip` in the same process."""


def installed(module: str) -> tuple[int, ...]:
    """Return the version of an installed framework as numbers, ``(2, 13, 0)``; empty where there is none.

    A module without metadata, as of a build in place, counts as of the newest version.
    """
    if module not in _found and (version := _look_up(module)):
        _found[module] = version
    return _found.get(module, ())


def _look_up(module: str) -> tuple[int, ...]:
    if module not in sys.modules and importlib.util.find_spec(module) is None:
        return ()
    from importlib import metadata  # slow to import, and most kernels have one framework

    try:
        version = metadata.version(module)
    except metadata.PackageNotFoundError:
        return NEWEST
    return tuple(map(int, re.findall(r"\d+", version)[:3])) or NEWEST


NEWEST = (1000,)
