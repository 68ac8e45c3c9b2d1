"""A real Prometheus with given samples: Debian's, as `scripts/test` unpacks it, or one that is installed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest

from tests.jupyter import free_port
from tests.waiting import until

ROOT = Path(__file__).parents[2]
UNPACKED = ROOT / ".prometheus" / "usr" / "bin"

Labels = frozenset[tuple[str, str]]
Answer = dict[Labels, float]


def program(name: str) -> str:
    """Return the path of ``prometheus`` or ``promtool``; the test fails where it is missing."""
    found = shutil.which(name, path=f"{UNPACKED}:{os.environ['PATH']}")
    if found is None:
        pytest.fail(f"{name} is not here. `scripts/test` fetches it as root; Debian, Ubuntu: apt install prometheus")
    return found


def promtool(*arguments: str | Path, cwd: Path = ROOT) -> str:
    """Run promtool, and return what it says."""
    done = subprocess.run(
        [program("promtool"), *arguments], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


class Samples:
    """Samples of any times, which become a file in the format of OpenMetrics. It is what `generate_latest` collects."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def add(self, families: Iterable[Metric], at: float) -> None:
        """Add what was scraped at a time."""
        for family in families:
            kept = self._metrics.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                kept.add_sample(sample.name, sample.labels, sample.value, at)

    def collect(self) -> Iterable[Metric]:
        """Return all of them."""
        return self._metrics.values()

    def blocks(self, folder: Path) -> None:
        """Make a folder of Prometheus' of them."""
        text = folder.with_suffix(".txt")
        text.write_bytes(generate_latest(self))  # type: ignore[no-untyped-call]
        promtool("tsdb", "create-blocks-from", "openmetrics", text, folder)
        text.unlink()


class Prometheus:
    """One that runs.

    Attributes:
        url: where it listens.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **parameters: Any) -> Any:
        """Return the data of an answer of its API."""
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}") as answer:
            return json.load(answer)["data"]

    def ask(self, expression: str, at: float) -> Answer:
        """Return what an expression is at a time, by labels."""
        found = self.get("query", query=expression, time=at)["result"]
        return {frozenset(one["metric"].items()): float(one["value"][1]) for one in found}


@contextlib.contextmanager
def prometheus(folder: Path, rules: Path) -> Iterator[Prometheus]:
    """Run it with a folder of data and a file of rules, on a port of its own; it scrapes nothing.

    Args:
        folder: of data.
        rules: a file of rules.
    """
    config, port = folder / "prometheus.json", free_port()
    config.write_text(json.dumps({"rule_files": [str(rules)]}))  # all JSON is YAML
    options = {
        "--config.file": config,
        "--storage.tsdb.path": folder,
        "--storage.tsdb.retention.time": "100y",
        "--web.listen-address": f"127.0.0.1:{port}",
    }
    with (folder / "log").open("w") as log:
        words = [f"{name}={value}" for name, value in options.items()]
        process = subprocess.Popen([program("prometheus"), *words], stdout=log, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"

    def ended_or_ready() -> bool:
        return process.poll() is not None or urllib.request.urlopen(f"{url}/-/ready", timeout=10).status == 200

    try:
        until(ended_or_ready, despite=OSError)
        assert process.poll() is None, (folder / "log").read_text()
        yield Prometheus(url)
    finally:
        process.kill()
        process.wait()
