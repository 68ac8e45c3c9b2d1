"""The file of all that users read, `tests/transcript.txt`: a part for each test, compared or written anew."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "transcript.txt"
RENEW = "TFGPU_RENEW_TRANSCRIPT"
"""The variable by which `scripts/transcript` has the file written."""

_HEAD = re.compile(r"^##### (.+) #####\n", re.MULTILINE)


def compare(part: str, text: str) -> None:
    """Fail with the lines that differ from what the file has of a part; or write them, if that is asked for."""
    parts = _read()
    if RENEW in os.environ:
        parts[part] = text
        FILE.write_text("".join(f"##### {name} #####\n{parts[name]}" for name in sorted(parts)))
        return
    lines = difflib.unified_diff(
        parts.get(part, "").splitlines(), text.splitlines(), FILE.name, "now", lineterm="", n=1
    )
    if diff := "\n".join(lines):
        pytest.fail(f"Users read something else now. If it is meant: scripts/transcript\n{diff}", pytrace=False)


def kept(part: str) -> str:
    """Return what the file has of a part; nothing while it is written anew."""
    return "" if RENEW in os.environ else _read().get(part, "")


def _read() -> dict[str, str]:
    _, *found = _HEAD.split(FILE.read_text() if FILE.exists() else "")
    return dict(zip(found[::2], found[1::2], strict=True))
