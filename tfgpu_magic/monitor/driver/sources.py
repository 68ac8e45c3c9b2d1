"""The table of all sources of figures: their names, and where their libraries are. Nothing is read here.

A look's child imports this, so it needs nothing that is slow to import, as pathlib is.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder

from tfgpu_magic.monitor.driver import nvidia

SOURCES = (nvidia.SOURCE,)
"""Every source; GPUs are numbered in this order."""


def product(name: str) -> str:
    """Return the name of a GPU without its maker's."""
    for source in SOURCES:
        name = name.removeprefix(f"{source.maker} ")
    return name


def names() -> str:
    """Return the sources' names for a message: ``NVML``."""
    return " or ".join(source.name for source in SOURCES)


def makers() -> str:
    """Return the makers' names for a message: ``NVIDIA``."""
    return " or ".join(source.maker for source in SOURCES)


def checks() -> str:
    """Return the commands that show whether a driver answers, for a message: ``nvidia-smi``."""
    return " or ".join(source.check for source in SOURCES if source.check)


def search_path() -> list[str]:
    """Return where a child process finds this package and the sources' libraries, none of which are imported here.

    A file with a library's name beside a notebook is never taken: it would serve every view of the user.

    Raises:
        ImportError: no source's library is installed.
    """
    found = {source: _folder(source.library) for source in SOURCES if source.library}
    missing = [source for source, folder in found.items() if folder is None]
    if len(missing) == len(SOURCES):
        raise ImportError(missing[0].not_installed)
    return [_above(__file__, 4), *(folder for folder in found.values() if folder is not None)]


def _folder(library: str) -> str | None:
    """Return the folder that a module is in; None where it is not installed."""
    here = _here()
    folders = [folder for folder in sys.path if folder and os.path.normpath(os.path.join(here, folder)) != here]  # noqa: PTH118
    spec = PathFinder.find_spec(library, folders)
    if spec is None or spec.origin is None:
        return None
    return _above(spec.origin, 2 if spec.submodule_search_locations else 1)


def _above(path: str, levels: int) -> str:
    return path if not levels else _above(os.path.dirname(path), levels - 1)  # noqa: PTH120


def _here() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:  # it was removed
        return ""
