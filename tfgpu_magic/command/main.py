"""The entry point of `tfgpu`, which ends it as a shell expects; what it does is for `dispatch`.

It imports next to nothing at its top: an interrupt meanwhile is a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit status.

    From here on no module is searched for where the command itself is, or with ``-m`` in the current folder: what lies
    beside the user is none of this package's.
    """
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):  # with -P, new in Python 3.11, and -I there is none
        del sys.path[0]
    try:
        from tfgpu_magic.command import dispatch  # here an interrupt during the import is caught, too

        outcome = dispatch.answer(sys.argv[1:] if words is None else list(words))
    except KeyboardInterrupt:
        return _interrupted()
    return outcome() if callable(outcome) else outcome


def begin(asked: Mapping[str, Any]) -> int:
    """Apply the policy of `tfgpu run` in the program's own Python; return 0, or the status to end with instead."""
    try:
        from tfgpu_magic.command import dispatch, program_policy  # as above

        return dispatch.outcome_of(partial(program_policy.apply, **asked))
    except KeyboardInterrupt:
        return _interrupted()


def _interrupted() -> int:
    """End as a program that Ctrl-C ends: a shell script that runs it is then ended too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    return 128 + signal.SIGINT
