"""Where the tests on a real GPU write what they saw: lines as `tfgpu doctor --park --json` writes one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfgpu_magic.parking.observation import MODULES, QUESTIONS, Observation

import tfgpu_magic
from tfgpu_magic.parking import facts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfgpu_magic.parking.observation import Seen

FILE = Path(os.environ.get("TFGPU_TEST_SEEN") or Path(__file__).parents[2] / "build" / "seen.jsonl")
"""It is only added to."""


def brings_back() -> bool:
    """Tell whether a process may be brought back: where the open module is loaded, its end may stop the machine."""
    return facts.open_module() is False or "TFGPU_TEST_OPEN_MODULE" in os.environ


def record(question: str, answer: Seen, why: Iterable[object] = (), **told: Any) -> Seen:
    """Write an answer down, and return it."""
    assert question in QUESTIONS
    snapshot = tfgpu_magic.look(60.0)
    seen = Observation(
        question=question,
        answer=answer,
        why=tuple(map(str, why)),
        gpu=next((gpu.name for gpu in snapshot.gpus), None),
        gpus=len(snapshot.gpus),
        driver=snapshot.driver,
        module="simulated" if snapshot.simulated else MODULES[facts.open_module()],
        **told,
    )
    write(f"{seen.to_line()}\n")
    return answer


def write(line: str) -> None:
    """Add a line."""
    FILE.parent.mkdir(parents=True, exist_ok=True)
    with FILE.open("a") as file:
        file.write(line)
