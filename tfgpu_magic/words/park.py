"""`%tf_gpu park`: moves a notebook's GPU state to host memory, from where its next cell brings it back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType

from tfgpu_magic.config.flags import part
from tfgpu_magic.config.word import Line, Word
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.host import here
from tfgpu_magic.units import seconds

_AUTO, _NEEDED, _CHECK, _OFF = "--auto", "--when-needed", "--check", "off"
_TIMES = ("10m", "20m", "1h", _OFF)


def inside() -> ModuleType:
    """Return what does it in this process; nothing of parking is imported before it is asked for."""
    from tfgpu_magic.parking.inside import line

    return line


def _answer(line: Line) -> None:
    parking = inside()
    name, flags = part(line.rest.split(), {_AUTO: f"{_AUTO} after which time?", _NEEDED: "", _CHECK: ""}, WORD.forms)
    if (name and flags) or (_CHECK in flags and len(flags) > 1) or (_NEEDED in flags and _AUTO not in flags):
        raise PolicyError(f"`park {line.rest}` cannot be done.{WORD.forms}")
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


def _offers(tokens: Sequence[str], _: Callable[[], Sequence[str]]) -> list[str]:
    if tokens[-1:] == [_AUTO]:
        return list(_TIMES)
    return [] if tokens else list(inside().names())


WORD = Word(
    "park",
    ("park", "park train.ipynb", "park --auto 20m [--when-needed]", "park --check"),
    "moves what this notebook, or another one of yours, holds of the GPUs to host memory when its cell has ended; its "
    "next cell brings it back. `--auto` does so by itself, `--check` says whether it can be done and why not",
    flags=((_AUTO, True), (_NEEDED, False), (_CHECK, False)),
    offers=_offers,
    tried=("suspend", "pause", "hibernate", "checkpoint", "swap", "offload", "sleep"),
    instead="`%tf_gpu park` moves what this notebook holds of the GPUs to host memory, and keeps it.",
    answer=_answer,
)
