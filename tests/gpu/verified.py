"""Writes what was seen on real GPUs into VERIFIED.md: a row for each GPU, driver and TensorFlow, of its latest try."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from tfgpu_magic.units import rounded

if TYPE_CHECKING:
    from tests.doctor.looking import Report

PAGE = Path(__file__).with_name("VERIFIED.md")
"""The page, which ends with the table of what was parked."""


def enter(report: Report, page: Path = PAGE) -> None:
    """Enter what a report of `tfgpu doctor --park` says, in the place of an earlier row of the same."""
    parked = report.facts("parking.works")
    of = (_gpu(report, parked["gpu"]), report.facts("driver.answers")["version"], _tensorflow(report))
    moved = (f"{parked[f'{way}_seconds']} s, {rounded(parked[f'{way}_rate_bytes'])}/s" for way in ("out", "back"))
    row = _row(time.strftime("%Y-%m-%d"), *of, rounded(parked["size_bytes"]), *moved)
    others = [line for line in page.read_text().splitlines(keepends=True) if _row(*of) not in line]
    page.write_text("".join(others) + row + "\n")


def _gpu(report: Report, label: str) -> str:
    """Return a GPU's name."""
    works = (row["facts"] for row in report.rows if row["name"] == "gpus.works")
    return str(next(facts["name"] for facts in works if facts["gpu"] == label))


def _tensorflow(report: Report) -> str:
    return str(report.facts("tensorflow.finds")["version"])


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
