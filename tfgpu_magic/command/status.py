"""`tfgpu status`: one look at the GPUs, as text or as JSON."""

from __future__ import annotations

import sys
import time
from dataclasses import replace

from tfgpu_magic.engine.status import Status
from tfgpu_magic.ground import phrases
from tfgpu_magic.lab import counters
from tfgpu_magic.machine.board.history import History
from tfgpu_magic.machine.see import DRIVER_TIMEOUT
from tfgpu_magic.policy.word import ParsedLine
from tfgpu_magic.tell import fetch, page_json

UNSEEN = 1
"""The exit status if no GPU could be read."""

MORE = """\
The JSON is the message that Jupyter Server serves at tfgpu-magic/snapshot:
sizes are bytes, times seconds since the epoch, and what is unknown is left out.
Its keys stay what they are while its version does:

  tfgpu status --json | jq '.state.gpus | map_values(.free)'
  tfgpu status --json | jq -r '.state.rows[] | [.gpu, .owner, .held] | @tsv'

Where a service reads the GPUs for all users, `hours` has what your processes
have held since it began to count, in byte-seconds.

The exit status is 1 where no GPU could be looked at."""


def run(line: ParsedLine) -> int:
    """Print what is to be seen now."""
    table, hours = fetch.table(patience=DRIVER_TIMEOUT, slow=_slow), counters.own_totals()
    if "--json" in line.flags:
        print(page_json.full(0, page_json.state(table), History(), hours=hours and _as_json(*hours)))
    else:
        print(repr(Status(replace(table, notes=(*table.notes, _sentence(*hours))) if hours else table, "program")))
    return UNSEEN if table.error else 0


def _as_json(since: float, total: counters.Total) -> page_json.OwnHours:
    return {
        "since": since,
        "held_byte_seconds": total.held,
        "held_unused_byte_seconds": total.unused,
        "unknown_process_seconds": total.unknown,
    }


def _sentence(since: float, total: counters.Total) -> str:
    """Return what this user's processes have held, as a sentence."""
    held, unused = (phrases.gib(round(one / 3600)) for one in (total.held, total.unused))
    begin = time.strftime("%Y-%m-%d %H:%M", time.localtime(since))
    more = " The driver did not report the bytes of some processes, which are not counted." if total.unknown else ""
    return f"Since {begin}, your processes have held {held} GiB-hours of GPU memory, {unused} without use.{more}"


def _slow() -> None:
    print("tfgpu: waiting for the NVIDIA driver, which is slow to answer…", file=sys.stderr)
