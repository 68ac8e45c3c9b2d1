"""The local variables of a function's frame, read so that the frame keeps none of them longer than before."""

from __future__ import annotations

import sys
from inspect import CO_OPTIMIZED
from types import FrameType

_OURS = 3
"""References to the dictionary of locals while only its frame has it: the frame's, ours, and that of the question."""


def local_variables(frame: FrameType) -> dict[str, object]:
    """Return a frame's local variables by their names; none of a module's, which are its global ones.

    Before Python 3.13 a frame keeps the dictionary that it gives, and with it all values, until it is asked again or
    ends. So that is emptied, unless somebody else has it: a debugger, or `locals()` in that function.
    """
    if not frame.f_code.co_flags & CO_OPTIMIZED:
        return {}
    given = frame.f_locals
    found = dict(given)
    if type(given) is dict and sys.getrefcount(given) <= _OURS and frame.f_trace is None:
        given.clear()
    return found
