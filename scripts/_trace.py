"""What a page's main thread spent on each tick of our stream, read from a trace of Chromium's. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

CATEGORIES = ["-*", "devtools.timeline", "disabled-by-default-devtools.timeline", "toplevel"]
"""What has to be traced."""

_OURS = "/tfgpu-magic/static/"
_TASK, _FRAME = "ThreadControllerImpl::RunTask", "Commit"
_PARTS = {
    "UpdateLayoutTree": "style",
    "Layout": "layout",
    "PrePaint": "paint",
    "Paint": "paint",
    "Layerize": "paint",
    "Commit": "paint",
}


@dataclass(slots=True)
class Task:
    """What the thread did without a pause, in milliseconds.

    Attributes:
        start: when it began.
        wall: how long it took.
        cpu: how long it was at work of that, and not kept waiting for a core.
        frame: it drew the page anew.
        message: it read a message of our stream.
        parts: what a part of the work took: script, style, layout or paint.
    """

    start: float
    wall: float
    cpu: float
    frame: bool = False
    message: bool = False
    parts: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Tick:
    """A message of our stream and the frames from it to the next one, whoever else drew in them."""

    tasks: list[Task]

    @property
    def wall(self) -> float:
        return sum(task.wall for task in self.tasks)

    @property
    def cpu(self) -> float:
        return sum(task.cpu for task in self.tasks)

    def part(self, name: str) -> float:
        return sum(task.parts.get(name, 0.0) for task in self.tasks)


def tasks(trace: bytes) -> list[Task]:
    """Read a trace: all that the page's main thread did."""
    events: list[dict[str, Any]] = json.loads(trace)["traceEvents"]
    main = next(_thread(event) for event in events if _names(event, "CrRendererMain"))
    mine = [event for event in events if _thread(event) == main and event["ph"] in "XI"]
    mine.sort(key=lambda event: (event["ts"], -event.get("dur", 0)))
    return list(_tasks(mine))


def ticks(tasks: Sequence[Task]) -> list[Tick]:
    """Tell which tasks are of which tick. What drew before the first one is of none."""
    found: list[Tick] = []
    for task in tasks:
        if task.message:
            found.append(Tick([task]))
        elif task.frame and found:
            found[-1].tasks.append(task)
    return found


def _tasks(events: Sequence[dict[str, Any]]) -> Iterator[Task]:
    task, received, end, part_end = None, False, 0.0, 0.0
    for event in events:
        name, start, length = event["name"], event["ts"] / 1000, event.get("dur", 0) / 1000
        if task is None or start >= end:
            if name == _TASK:
                if task is not None:
                    yield task
                received = False
                task, end = Task(start, length, event.get("tdur", 0) / 1000), start + length
            continue
        received = received or name == "WebSocketReceive"
        if name == _FRAME:
            task.frame = True
        script = name == "FunctionCall"
        if script and received and _OURS in event["args"]["data"].get("url", ""):
            task.message = True
        part = "script" if script else _PARTS.get(name)
        if part is not None and start >= part_end:  # not what is inside of another part
            task.parts[part] = task.parts.get(part, 0.0) + length
            part_end = start + length
    if task is not None:
        yield task


def _thread(event: dict[str, Any]) -> tuple[int, int]:
    return event["pid"], event["tid"]


def _names(event: dict[str, Any], thread: str) -> bool:
    return event["name"] == "thread_name" and bool(event["args"]["name"] == thread)
