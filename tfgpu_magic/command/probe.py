"""`tfgpu probe`: tells Kubeflow's activity probe whether the notebooks of a container are at work, their GPUs too."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psutil
from jupyter_core.paths import jupyter_runtime_dir

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.lab.ladder import trouble
from tfgpu_magic.model.rows import Table
from tfgpu_magic.monitor.live import Live
from tfgpu_magic.monitor.owners.pids import lives
from tfgpu_magic.monitor.table.fetch import Watcher
from tfgpu_magic.notebook.server_client import Server
from tfgpu_magic.units import seconds

UNKNOWN = 1
"""The exit status where it is not known: Kubeflow then changes nothing."""
ANSWER_TIMEOUT = 5.0
"""Seconds in which a Jupyter server answers, and the GPUs are read."""

_MORE = """\
It is for the exec probe of Kubeflow Notebooks 2. It prints a line of JSON, and
writes it to $OUTPUT_JSON_PATH. There is activity while a kernel runs anything,
and for --within after the last use of a kernel or of a GPU. Where that is not
known, it says why and ends with 1, and Kubeflow changes nothing: no Jupyter
server answers, or the driver does not tell who uses the GPU."""


def prepare(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.epilog = _MORE
    parser.add_argument("--within", default="30m", type=seconds, help="how long ago the last use may be (30m)")


def run(options: argparse.Namespace) -> int:
    """Print what is known, and write it where Kubeflow wants it."""
    try:
        with Live(linger=2 * options.within + 600, every=5.0) as live:  # its collector sees what is between two probes
            live.wait(ANSWER_TIMEOUT)
            table = Watcher(live).see()
        found = activity(table, list(_kernels()), time.time() - options.within)
    except (
        MonitorError,
        OSError,
        ValueError,
        LookupError,
        psutil.Error,
    ) as error:  # a server's answer may be of any make
        print(f"tfgpu probe: {error}", file=sys.stderr)
        return UNKNOWN
    print(json.dumps(found))
    if path := os.environ.get("OUTPUT_JSON_PATH"):
        Path(path).write_text(json.dumps(found))
    return 0


def activity(table: Table, kernels: list[dict[str, Any]], since: float) -> dict[str, object]:
    """Return what Kubeflow is told.

    Args:
        table: who holds what of the GPUs.
        kernels: those of this user's Jupyter servers, as these list them.
        since: from when on a use is activity, in seconds since the epoch.

    Raises:
        MonitorError: it is not known.
    """
    rows = [row for row in table.processes if row.who == "mine" and row.kind != "G"]
    if any(kernel["execution_state"] != "idle" for kernel in kernels) or any(row.utilisation for row in rows):
        return {"has_activity": True}
    if why := trouble(table) or ("" if kernels else "no Jupyter server of this user has a kernel"):
        raise MonitorError(why)
    used = [row.unused for row in rows]
    if None in used:
        raise MonitorError("since when GPU memory is unused is not known yet, or the driver does not tell it")
    at = [datetime.fromisoformat(kernel["last_activity"].replace("Z", "+00:00")).timestamp() for kernel in kernels]
    last = max([*at, *filter(None, used)])
    moment = datetime.fromtimestamp(last, timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {"has_activity": last >= since, "last_activity": moment}


def _kernels() -> Iterator[dict[str, Any]]:
    """Give the kernels of this user's Jupyter servers; raise OSError if one of these does not answer."""
    for path in Path(jupyter_runtime_dir()).glob("jpserver-*.json"):
        info = json.loads(path.read_text())
        if not lives(info["pid"]):
            continue
        token = info["token"] or os.environ.get("JUPYTERHUB_API_TOKEN", "")
        born = psutil.Process(info["pid"]).create_time()
        Server(info["pid"], born, info["url"], token, "").address()  # it listens there: nobody else gets its token
        asked = urllib.request.Request(f"{info['url']}api/kernels", headers={"Authorization": f"token {token}"})  # noqa: S310
        with urllib.request.urlopen(asked, timeout=ANSWER_TIMEOUT) as answer:  # noqa: S310  # a server's own address
            yield from json.load(answer)
