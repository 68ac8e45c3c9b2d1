"""What TensorFlow's allocator had in use after each allocation, as its own profiler traces it.

The profiler resets no counter and asks for none, so what it tells has nothing in common with what `measure` goes by.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

_ALLOCATOR = re.compile(r"GPU_(\d+)_bfc")
_MARK = "mark of a test"


class _Event(NamedTuple):
    """What was traced, with its picoseconds."""

    begin: int
    end: int
    name: str
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Trace:
    """What was traced.

    Attributes:
        in_use: for each logical GPU, the times and the bytes in use from then on.
        marks: the times at which each mark began and ended, by name.
    """

    in_use: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    marks: dict[str, tuple[int, int]] = field(default_factory=dict)

    def highest(self, since: int, until: int) -> dict[str, int]:
        """Return the most bytes in use of each logical GPU between two times."""
        return {
            gpu: max([*[size for at, size in changes if at <= since][-1:], *_within(changes, since, until)])
            for gpu, changes in self.in_use.items()
        }


def mark(name: str) -> AbstractContextManager[object]:
    """Return a block whose beginning and end are traced."""
    import tensorflow as tf

    found: AbstractContextManager[object] = tf.profiler.experimental.Trace(_MARK, called=name)
    return found


def traced(do: Callable[[], object]) -> Trace:
    """Run a function that first allocates on each logical GPU, and return what was traced meanwhile."""
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    profiler, trace = tf.profiler.experimental, Trace()
    with tempfile.TemporaryDirectory() as folder:
        with profiler.Profile(folder, profiler.ProfilerOptions(device_tracer_level=0)):
            do()
        (file,) = Path(folder).rglob("*.xplane.pb")
        space = xplane_pb2.XSpace.FromString(file.read_bytes())
    for begin, end, name, facts in sorted(_events(space), key=lambda event: event.begin):
        if name == _MARK:
            trace.marks[facts["called"]] = (begin, end)
        elif allocator := _ALLOCATOR.fullmatch(facts.get("allocator_name", "")):
            trace.in_use.setdefault(f"GPU:{allocator[1]}", []).append((begin, facts["bytes_allocated"]))
    return trace


def _within(changes: list[tuple[int, int]], since: int, until: int) -> list[int]:
    return [size for at, size in changes if since < at <= until]


def _events(space: Any) -> Iterator[_Event]:
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                begin = line.timestamp_ns * 1000 + event.offset_ps
                facts = {plane.stat_metadata[stat.metadata_id].name: _value(plane, stat) for stat in event.stats}
                yield _Event(begin, begin + event.duration_ps, plane.event_metadata[event.metadata_id].name, facts)


def _value(plane: Any, stat: Any) -> Any:
    kind = stat.WhichOneof("value")
    return plane.stat_metadata[stat.ref_value].name if kind == "ref_value" else getattr(stat, kind)
