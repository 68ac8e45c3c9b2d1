"""`%tf_gpu park`: moves a notebook's GPU state to host memory, from where its next cell brings it back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfgpu_magic.errors import PolicyError
from tfgpu_magic.host import here
from tfgpu_magic.parking.inside import line as parking
from tfgpu_magic.policy.arguments import separate
from tfgpu_magic.policy.word import Line
from tfgpu_magic.units import seconds

_AUTO, _NEEDED, _CHECK, _OFF = "--auto", "--when-needed", "--check", "off"
_TIMES = ("10m", "20m", "1h", _OFF)


def answer(line: Line) -> None:
    """Park what the line says, now or by itself."""
    name, flags = separate(
        line.rest.split(), {_AUTO: f"{_AUTO} after which time?", _NEEDED: "", _CHECK: ""}, line.word.forms
    )
    if (name and flags) or (_CHECK in flags and len(flags) > 1) or (_NEEDED in flags and _AUTO not in flags):
        raise PolicyError(f"`park {line.rest}` cannot be done.{line.word.forms}")
    if _CHECK in flags:
        print(parking.check())
    elif flags.get(_AUTO) == _OFF:
        parking.automatically(None, when_needed=False)
        print(f"This {here()} is not parked by itself any more.")
    elif _AUTO in flags:
        parking.automatically(seconds(flags[_AUTO]), when_needed=_NEEDED in flags)
        when = " and another one waits for its room" if _NEEDED in flags else ""
        print(f"This {here()} is parked by itself when no cell has run for {flags[_AUTO]}{when}.")
    elif name:
        print(parking.park_other(" ".join(name)))
    else:
        parking.park()


def offers(tokens: Sequence[str], _: Callable[[], Sequence[str]]) -> list[str]:
    """Return times, or the names of other notebooks."""
    if tokens[-1:] == [_AUTO]:
        return list(_TIMES)
    return [] if tokens else list(parking.names())
