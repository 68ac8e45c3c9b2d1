"""`tfgpu status`: one look at the GPUs, as text or as JSON."""

from __future__ import annotations

import argparse
import sys

from tfgpu_magic.engine.status import Status
from tfgpu_magic.monitor.board.history import History
from tfgpu_magic.monitor.driver.look import LOOK_TIMEOUT
from tfgpu_magic.monitor.driver.sources import makers
from tfgpu_magic.monitor.table import fetch, message

UNSEEN = 1
"""The exit status where no GPU could be looked at."""

_JSON = """\
The JSON is the message that Jupyter Server serves at tfgpu-magic/snapshot:
sizes are bytes, times seconds since the epoch, and what is unknown is left out.
Its keys stay what they are while its version does:

  tfgpu status --json | jq '.state.gpus | map_values(.free)'
  tfgpu status --json | jq -r '.state.rows[] | [.gpu, .owner, .held] | @tsv'

The exit status is 1 where no GPU could be looked at."""


def prepare(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.epilog = _JSON
    parser.add_argument("--json", action="store_true", help="write it as one line of JSON")


def run(options: argparse.Namespace) -> int:
    """Print what is to be seen now."""
    table = fetch.table(patience=LOOK_TIMEOUT, slow=_slow)
    print(message.full(0, message.state(table), History()) if options.json else repr(Status(table, "program")))
    return UNSEEN if table.error else 0


def _slow() -> None:
    print(f"tfgpu: waiting for the {makers()} driver, which is slow to answer…", file=sys.stderr)
