"""Which version of a framework is installed, found without importing it."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys


@functools.cache
def installed(module: str) -> tuple[int, ...]:
    """Return the version of an installed framework as numbers, ``(2, 13, 0)``; empty where there is none.

    A module without metadata, as of a build in place, counts as of the newest version.
    """
    if module not in sys.modules and importlib.util.find_spec(module) is None:
        return ()
    from importlib import metadata  # slow to import, and most kernels have one framework

    try:
        version = metadata.version(module)
    except metadata.PackageNotFoundError:
        return NEWEST
    return tuple(map(int, re.findall(r"\d+", version)[:3])) or NEWEST


NEWEST = (1000,)
