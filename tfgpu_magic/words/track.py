"""`%tf_gpu track`: a line below each cell that changes memory much, and the session as a chart and by cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tfgpu_magic.config.arguments import SIZES
from tfgpu_magic.config.flags import part
from tfgpu_magic.config.word import Line, Word
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.host import shell
from tfgpu_magic.units import parse_bytes, rounded

if TYPE_CHECKING:
    from tfgpu_magic.views.track import Session

_ON, _OFF, _ABOVE, _SAVE = "on", "off", "--above", "--save"


def _answer(line: Line) -> Session | None:
    from tfgpu_magic.insight import session, tracker  # few lines need them

    lacks = {_ABOVE: f"{_ABOVE} which size?", _SAVE: f"{_SAVE} to which file?"}
    rest, flags = part(line.rest.split(), lacks, WORD.forms)
    if rest == [_ON] and _SAVE not in flags:
        least = parse_bytes(flags[_ABOVE]) if _ABOVE in flags else tracker.LEAST
        tracker.start(shell(), least)
        print(f"Each cell is tracked. A line below it says when it changes what is in use by {rounded(least)} or more.")
        return None
    if rest == [_OFF] and not flags:
        tracker.stop()
        print("Cells are not tracked any more. `%tf_gpu track` shows those that were.")
        return None
    if rest or _ABOVE in flags:
        raise PolicyError(f"`track {line.rest}` cannot be done.{WORD.forms}")
    shown = replace(session.timeline(), tracked=tracker.is_on())
    if _SAVE not in flags:
        return shown
    try:
        shown.save(flags[_SAVE])
    except OSError as error:
        raise PolicyError(f"{flags[_SAVE]!r} cannot be written: {error.strerror}.") from None
    print(f"Saved: {flags[_SAVE]}")
    return None


def _offers(tokens: Sequence[str], _: Callable[[], Sequence[str]]) -> list[str]:
    if tokens[-1:] == [_ABOVE]:
        return list(SIZES)
    return [] if tokens else [_ON, _OFF]


WORD = Word(
    "track",
    ("track on [--above 64MiB]", "track off", "track [--save FILE]"),
    "a line below each cell that changes memory much; alone, a chart of the session and what each cell did",
    flags=((_ABOVE, True), (_SAVE, True)),
    offers=_offers,
    tried=("record", "history", "trace", "monitor", "chart", "timeline"),
    instead="What each cell does to memory is `%tf_gpu track on`; `%tf_gpu track` shows it.",
    answer=_answer,
)
