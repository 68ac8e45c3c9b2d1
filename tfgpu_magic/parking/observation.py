"""What was seen of parking on one GPU: a line of JSON without names and paths, which the table of docs/seen.md is of.

`tfgpu doctor --park --json` writes one, and tests/gpu one for each question. Pure.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

from tfgpu_magic._version import __version__

Seen: TypeAlias = Literal["yes", "no", "refused", "skipped"]
"""The answer to a question: *refused* by tfgpu_magic or by the driver, *skipped* since it could not be asked there."""

QUESTIONS = {
    "parks": "Does a process leave the GPU, and come back as it was?",
    "leaves": "Does it leave the GPU, with nothing of it listed there?",
    "ends-suspended": "May it end while it is suspended, by itself?",
    "killed-suspended": "May it be killed while it is suspended?",
    "checks": "Do the checks let it be parked?",
    "mappings": "Has it mapped the file of managed memory once at most?",
    "two-gpus": "Does a process leave two GPUs?",
    "exclusive-mode": "Is there room for a second context where a GPU is in an exclusive mode?",
    "after-profiler": "Does it leave the GPU after the framework's profiler has run in it?",
    "prefetch": "Does it leave the GPU while an iterator of tf.data prefetches to it, and live on?",
    "keeps-nvml": "Does it never unload NVML while it runs?",
    "query-answers": "Is the driver's state query answered within a second while memory is copied?",
}
"""What is asked, by the name of the question."""

MODULES = {True: "open", False: "proprietary", None: None}
"""The names of the kernel modules, by whether it is the open one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The answer to one question; None is unknown."""

    question: str  # its name, one of `QUESTIONS`
    answer: Seen
    why: tuple[str, ...] = ()  # the reasons' names, or the driver's call and its error's number; no word of the user's
    gpu: str | None = None  # the GPU's name
    gpus: int | None = None  # how many the machine has
    driver: str | None = None  # the driver's version
    module: str | None = None  # its kernel module: open, proprietary, simulated
    framework: str | None = None  # the framework and its version
    held: int | None = None  # bytes that the process held of the GPU
    out: int | None = None  # bytes a second that they left it at
    back: int | None = None  # bytes a second that they came back at
    date: str = ""  # the day
    version: str = __version__  # tfgpu_magic's

    def to_line(self) -> str:
        """Return it as a line of JSON, without what is unknown, and of today if it has no date."""
        told = {name: value for name, value in asdict(self).items() if value not in (None, ())}
        return json.dumps(told | {"date": self.date or time.strftime("%Y-%m-%d")})

    @classmethod
    def from_line(cls, line: str) -> Observation:
        """Return what a line tells, without what is not known here; what is no such line is a `ValueError`."""
        try:
            told = {name: value for name, value in json.loads(line).items() if name in cls.__dataclass_fields__}
            return cls(**told | {"why": tuple(told.get("why", ()))})
        except (TypeError, AttributeError) as error:
            raise ValueError(f"no line of a report: {line[:80]}") from error
