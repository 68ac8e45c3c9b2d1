"""Asks a process of its own, which is given up when its time is over, and returns its facts or why there are none."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfgpu_magic.ground import child_process
from tfgpu_magic.ground.child_process import ChildProcess
from tfgpu_magic.isolate.process.exit_cause import describe

IMPORTING = 120.0
"""Seconds for a process that imports much, as TensorFlow: that takes some seconds, and on a slow disk a minute."""

# It ends by itself too, should this process have been killed meanwhile. Its modules are found where this process finds
# them, and not in the working directory.
_CODE = "import signal, sys; signal.alarm({seconds}); sys.path[:], sys.argv[1:] = sys.argv[1:], []; "
_LATER = 5
"""Seconds after its time at which a process ends by itself."""
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of asking a process.

    Attributes:
        facts: what it answered; empty where it gave no answer.
        why: why it gave no answer: the last line of its error output, or how it ended; empty where it gave one.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""


def ask(code: str, *, patience: float | None = None, env: Mapping[str, str] | None = None) -> Reply:
    """Run code in a Python process like this one, and wait for the one line of JSON that it prints last.

    Args:
        code: Python code in one line.
        patience: seconds until the process is given up; None is `child_process.PATIENCE`.
        env: its environment; None is this process's.
    """
    limit = child_process.PATIENCE if patience is None else patience
    try:
        begin = _CODE.format(seconds=math.ceil(limit) + _LATER)
        asked = ChildProcess(["-c", begin + code, *sys.path], env=env, options=(), patience=limit)
        out, err, status = asked.answer(limit + 1)
    except TimeoutError:
        return Reply(why=f"it took more than {limit:g} s")
    except OSError as error:  # no memory or no processes left
        return Reply(why=f"no process could be started ({error.strerror})")
    try:
        return Reply(json.loads((out.splitlines() or [""])[-1]))
    except ValueError:
        said = err.strip().splitlines()[-1:] if status == 1 else []  # else it crashed, and Python has not the last word
        return Reply(why=(said or [describe(status)])[0][:_LONGEST])
