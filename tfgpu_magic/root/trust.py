"""Whether root may go by a file: only if root alone can change it; and whether all that Python runs here is so."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = 0


def is_roots(found: os.stat_result) -> bool:
    """Return whether root alone can change a file or folder; a link's rights mean nothing."""
    return found.st_uid == ROOT and (stat.S_ISLNK(found.st_mode) or not found.st_mode & 0o022)


def flaw() -> str:
    """Return why this interpreter is not for root; empty if it is."""
    if not sys.flags.isolated:
        return "start it with `python -I`: else variables and the working directory choose its modules"
    modules = (getattr(one, name, None) for one in tuple(sys.modules.values()) for name in ("__file__", "__cached__"))
    for path in sorted({sys.executable, sys.prefix, sys.base_prefix, *sys.path, *filter(None, modules)}):
        for step in steps(Path(path)):
            if not is_roots(step.lstat()):
                return f"others than root can change {step}, which this runs: install it for root, in /opt/tfgpu_magic"
    return ""


def steps(path: Path) -> Iterator[Path]:
    """Yield all that leads to a file, from ``/`` on: each folder, each link and what it leads to, if it is there."""
    at, left = Path("/"), list(path.parts[1:])
    while os.path.lexists(at):
        yield at
        if at.is_symlink():
            target = at.readlink()
            at, left = at.parent, [*target.parts, *left]
        if not left:
            return
        at = at.parent if (part := left.pop(0)) == ".." else at / part  # "/" begins again at the top
