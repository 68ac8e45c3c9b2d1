"""`%tf_gpu track`: a line below each cell that changes memory much, and the session as a chart and by cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tfgpu_magic.ground.process_kind import shell
from tfgpu_magic.ground.units import parse_bytes, rounded
from tfgpu_magic.insight import session, tracker
from tfgpu_magic.insight.session import Session
from tfgpu_magic.policy.word import ParsedLine

_ON, _OFF, _ABOVE = "on", "off", "--above"


def run(line: ParsedLine) -> Session | None:
    """Switch it on or off, or return the session."""
    asked = " ".join(line.values)
    if asked == _ON:
        least = parse_bytes(line.flags[_ABOVE]) if line.flags else tracker.LEAST
        tracker.meter(shell()).track(least)
        print(f"Each cell is tracked. A line below it says when it changes what is in use by {rounded(least)} or more.")
        return None
    if asked == _OFF and not line.flags:
        tracker.meter(shell()).track(None)
        print("Cells are not tracked any more. `%tf_gpu track` shows those that were.")
        return None
    if asked or line.flags:
        raise line.word.error(f"`track {line.rest}` cannot be done.")
    return replace(session.timeline(), tracked=tracker.meter(shell()).least is not None)


def completions(tokens: Sequence[str], _: Callable[[], Sequence[str]]) -> list[str]:
    """Return what may follow."""
    return [] if tokens else [_ON, _OFF]
