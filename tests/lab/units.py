"""Has systemd judge a unit that is shipped, where systemd-analyze is installed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

UNITS = Path(__file__).parents[2] / "systemd"


def judged(name: str, folder: Path) -> float:
    """Return how exposed systemd finds a unit, from 0 to 10, when it has found no mistake in it.

    Args:
        name: the unit's.
        folder: where a copy may be made, of which the program is one that is here.
    """
    for socket in UNITS.glob("*.socket"):  # which a unit may require
        (folder / socket.name).write_text(socket.read_text())
    unit = folder / name
    unit.write_text(re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={sys.executable}", (UNITS / name).read_text()))
    try:
        verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
        security = ["systemd-analyze", "security", "--offline=true", str(unit)]
        found = subprocess.run(security, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("systemd-analyze is not installed here")
    level = re.search(r"exposure level for \S+: ([\d.]+)", found.stdout)

    assert name not in verified.stderr
    return float(level[1]) if level else 0.0  # earlier than 250, systemd judges no file
