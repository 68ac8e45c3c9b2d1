"""Runs the commands of docs/lab.md on a machine of its own, without a Hub, and prints what they have brought about."""

from __future__ import annotations

import contextlib
import json
import time
from functools import partial
from pathlib import Path

import psutil

from scripts._hub_users import User, unix_user
from scripts._lab import HOME, PROMETHEUS, Lab, commands, lab, walk
from scripts._systemctl import RUNNING
from tests.lab.prometheus import Prometheus
from tests.waiting import until
from tfgpu_magic.errors import SimulatorError

SERVICES = ("tfgpu-collector", "tfgpu-exporter", "tfgpu-limits", "prometheus")
FIGURES = ("tfgpu_magic_up", 'tfgpu_magic_held_bytes{username="ann"}', 'tfgpu_magic_limit_hard_bytes{username="ann"}')


def main() -> None:
    """Have ann hold memory, follow the page, and print a line of JSON."""
    with lab() as here, contextlib.ExitStack() as stack:
        HOME.mkdir()
        ann = stack.enter_context(unix_user("ann", HOME))
        own = Path(f"/sys/fs/cgroup/user.slice/user-{ann.uid}.slice")
        own.mkdir(parents=True)
        here.machine.add_neighbour("3GiB@0", user=ann.uid, cgroup=own)
        walk(here, alone=True)
        here.do(commands()[5])  # once more: nothing is there twice
        found = {
            "users": {name: psutil.Process(int((RUNNING / f"{name}.pid").read_text())).username() for name in SERVICES},
            "figures": _figures(),
            "kept": _asked().get("status/flags")["storage.tsdb.retention.time"],
            "beyond": _beyond(here, ann, own),
            "dashboard": json.loads(Path("/var/lib/grafana/dashboards/dashboard.json").read_text())["title"],
        }
        print(json.dumps(found), flush=True)


def _figures() -> dict[str, float]:
    """Return what Prometheus has of the machine and of ann, and how many alerts it watches for."""
    asked, found = _asked(), {}
    for figure in FIGURES:
        (found[figure],) = until(partial(_answers, asked, f"max({figure})"), any, despite=OSError, seconds=60)
    groups = asked.get("rules")["groups"]
    return found | {"alerts": len([rule for group in groups for rule in group["rules"] if rule["type"] == "alerting"])}


def _asked() -> Prometheus:
    return Prometheus(f"http://127.0.0.1:{PROMETHEUS}")


def _answers(asked: Prometheus, expression: str) -> list[float]:
    return list(asked.ask(expression, time.time()).values())


def _beyond(here: Lab, ann: User, cgroup: Path) -> bool:
    """Tell whether the driver gives ann more than her limit."""
    with contextlib.suppress(SimulatorError):
        here.machine.add_neighbour("6GiB@0", user=ann.uid, cgroup=cgroup)
        return True
    return False


if __name__ == "__main__":
    main()
