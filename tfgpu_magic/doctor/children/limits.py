"""In a process of its own: what the driver holds the cgroups to that this process is in, and by which controller."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from tfgpu_magic.root import cgroups
from tfgpu_magic.root.driver import Failed, Limiter, TooOld
from tfgpu_magic.root.file import UNLIMITED


def main() -> None:
    """Print it, and exit at once."""
    print(json.dumps(_answer()), flush=True)
    os._exit(0)


def _answer() -> dict[str, Any]:
    mounted = cgroups.mount()
    if mounted is None:
        return {"why": "cgroups of version 2 are not mounted", "none": True}
    root, own = mounted
    try:
        limiter = Limiter(str(own))
    except (Failed, TooOld) as error:
        return {"why": str(error), "none": isinstance(error, TooOld), "own": str(own)}
    above = [path for path in (own, *own.parents) if root in path.parents]
    nests, held = (root / "dmem.capacity").exists(), []
    for path in above:
        back_end = "dmem" if (path / "dmem.max").exists() else "misc"
        if nests and back_end == "misc":
            continue  # what the driver tells of it is the limit of the next one above that has the controller
        for card in limiter.cards:
            with contextlib.suppress(Failed):  # it never had a limit
                soft, hard, used = limiter.get(card, str(path))
                figures = {"soft_bytes": soft, "hard_bytes": hard, "used_bytes": used, "back_end": back_end}
                held += [{"cgroup": str(path), "gpu": card.number, **figures}] if (soft, hard) != (0, UNLIMITED) else []
    stops = [str(path.parent) for path in above if "dmem" not in _passed(path.parent)] if nests else []
    return {"why": "", "own": str(own), "held": held, "stops": stops[-1:]}


def _passed(cgroup: Path) -> list[str]:
    try:
        return (cgroup / "cgroup.subtree_control").read_text().split()
    except OSError:
        return []
