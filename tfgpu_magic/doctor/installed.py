"""Which packages are installed, and in which versions, found without importing any."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from importlib import metadata

UNKNOWN = "of an unknown version"
"""The version of a module that no package tells of, as one that was built in place."""

_PACKAGES = {"tensorflow": ("tensorflow", "tensorflow-cpu", "tf-nightly", "tf-nightly-cpu", "tensorflow-intel")}
"""The packages that a module may come with, where they are not called as it is."""


def version_of(module: str) -> str | None:
    """Return the version of a module's package as it is written: ``2.21.0``; None where there is no such module."""
    if importlib.util.find_spec(module) is None:
        return None
    for package in _PACKAGES.get(module, (module,)):
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return UNKNOWN


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: ``(2, 21, 0)``; a version that is unknown counts as the newest."""
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])[:3])) or (10**6,)


def distributions(prefix: str) -> Iterator[str]:
    """Give the names of the installed packages that begin so."""
    for distribution in metadata.distributions():
        name: str | None = distribution.metadata["Name"]
        if name and name.lower().startswith(prefix):
            yield name
