"""What administrators read of `tfgpu limits`, what Prometheus does of the exporter, and what `tfgpu top` draws."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from tests.command.shell import TFGPU, terminal_of
from tests.lab.test_exporter import ANN, BEN, NAMES, POD, board, row
from tests.processes import PATIENCE
from tests.sizes import GIB
from tests.transcript.kept import compare, kept
from tests.transcript.stage import MACHINES, alike, machine_of
from tests.waiting import until
from tfgpu_magic.ground.process_kind import SIMULATED_USER
from tfgpu_magic.lab.counters import Total
from tfgpu_magic.lab.exporter import UNKNOWN, LimitFacts, MachineSeen, make_metrics
from tfgpu_magic.simgpu import Machine

# --- tfgpu limits ---

CODE = """
import json, sys
from pathlib import Path
from tfgpu_magic.root import __main__ as limits, cgroups, driver, file, trust
folder = Path({folder!r})
cgroups.mount, file.FILE = lambda: (folder / "cgroup",) * 2, folder / "tfgpu_magic.toml"
limits.STATE, known = folder / "limits.json", folder / "known.json"
trust.ROOT, trust.flaw = {user}, trust.flaw if {checks} else lambda: ""

def kept(call):
    def instead(limiter, card, path, *sizes):
        try:
            return call(limiter, card, path, *sizes)
        except driver.Failed as error:
            if str(error) != "Not Found":
                raise
        there = json.loads(known.read_text())
        if sizes:
            known.write_text(json.dumps(there | {{f"{{card.uuid}} {{path}}": sizes}}))
        return *there.get(f"{{card.uuid}} {{path}}", (0, driver.UNLIMITED)), 0
    return instead

driver.Limiter.set, driver.Limiter.get = kept(driver.Limiter.set), kept(driver.Limiter.get)
sys.exit(limits.main())
"""
"""The program that sets limits, run by whoever runs the tests as root: folders are its cgroups, a file keeps limits."""

HALF = '[limits]\nhard = "50%"\nsoft = "1GiB"\n'
MISTAKES = (
    "[limits]\nhard = 7\n", '[limits]\nhard = "much"\n', '[limits]\nsoft = "0.1MiB"\n', '[limits]\nbound = "1GiB"\n',
    '[limits]\nusers = "70001"\n', "limits = 3\n", "[limits\n", '[limits.users.70001]\nhard = "101%"\n',
    '[limits.paths.batch]\nhard = "1GiB"\n',
)  # fmt: skip


@dataclass
class Site:
    """A machine with driver 615, the slices of two users, and the administrator's file.

    Attributes:
        machine: it.
        folder: where all of that lies.
        said: what was done, and what was read.
    """

    machine: Machine
    folder: Path
    said: list[str]

    def write(self, text: str) -> None:
        """Give the file another text."""
        (self.folder / "tfgpu_magic.toml").write_text(text)
        self.said += ["The file has:", *text.splitlines()]

    def do(self, *actions: str, root: int = 0, checks: bool = False) -> None:
        """Do what `tfgpu limits` does: so many users away from root, and checking what it runs or not."""
        code = CODE.format(folder=str(self.folder), user=os.getuid() + root, checks=checks)
        for action in actions:
            command = [sys.executable, "-c", code, *action.split()]
            done = self.machine.run(command, capture_output=True, text=True, timeout=PATIENCE)
            self.said += [f"$ tfgpu limits {action}", *done.stdout.splitlines(), *done.stderr.splitlines()]
            if done.returncode:
                self.said.append(f"[exit status {done.returncode}]")


def test_tfgpu_limits(tmp_path: Path) -> None:
    os.umask(0o022)  # what a group may write is not root's alone
    with Machine.create("16GiB,8GiB") as machine:
        machine.set_driver("615.71.09")
        (tmp_path / "known.json").write_text("{}")
        site = Site(machine, tmp_path, [])
        for uid in (70001, 70002):
            (tmp_path / f"cgroup/user.slice/user-{uid}.slice").mkdir(parents=True)
        site.write("")
        site.do("--show", "--once")
        site.write(HALF)
        site.do("--dry-run", "--once", "--once", "--show", "--dry-run")
        batch = tmp_path / "cgroup/batch.slice"
        site.write(
            f'{HALF}users.70001 = {{ hard = "none" }}\nusers.nobody-has-it = {{ hard = "1GiB" }}\n'
            f'groups.nobody-has-it = {{ hard = "1GiB" }}\npaths."{batch}" = {{ hard = "1GiB" }}\n'
        )
        site.do("--once")
        for text in MISTAKES:
            site.write(text)
            site.do("--once")
        site.do("--show", "--clear", "--show")
        site.write(HALF)
        site.said.append("GPU 1 is lost:")
        machine.lose(1)
        site.do("--once", "--show")
        machine.restore(1)
        site.said.append("Started otherwise than by `tfgpu limits`:")
        site.do("--once", checks=True)
        site.said.append("By another user than root:")
        site.do("--once", "--show", "--watch now", root=1)
        site.said.append("A driver before 615:")
        machine.set_driver("580.95.05")
        site.do("--show", "--once")
        site.said.append("No driver:")
        machine.remove_driver()
        site.do("--show")
    compare("tfgpu limits", alike("\n".join(site.said) + "\n\n", {str(tmp_path): "<folder>"}))


# --- the exporter ---

SEEN = MachineSeen(
    "lab1",
    board(row(ANN, GIB, cgroup=POD), row(ANN, 2 * GIB, 8, unused=9e8), row(BEN, 4 * GIB, 9), row(BEN, None, 10)),
    {("GPU-0", ANN): Total(30.0, 20.0)},
    {**NAMES, 70000: UNKNOWN},
    LimitFacts({("GPU-0", ANN): (1, 2), ("GPU-0", BEN): (None, 6 * GIB)}, 2),
    {("GPU-0", 70000): Total(4.0)},
)


@dataclass(eq=False)
class Seen(Collector):
    """Tells what was seen of a machine."""

    seen: MachineSeen

    def collect(self) -> list[Metric]:
        return make_metrics(self.seen, 1e9)


def test_what_the_exporter_says() -> None:
    bodies = []
    for title, seen in (("A machine", SEEN), ("Nothing is fresh", SEEN._replace(board=None))):
        registry = CollectorRegistry()
        registry.register(Seen(seen))
        bodies += [f"=== {title}", generate_latest(registry).decode()]
    compare("What the exporter says", alike("\n".join(bodies) + "\n", {}))


# --- tfgpu top ---

HOME, CONTROL = "\x1b[H", re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""What begins a drawing of the whole terminal, and all that a terminal does not show."""


def test_top_in_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SIMULATED_USER, "maria")
    part = "tfgpu top"
    screens = [_screen(on, kept(part)) for on in ("shared", "free", "lost", "driverless")]
    compare(part, "\n".join(screens) + "\n")


def _screen(on: str, known: str) -> str:
    """Return what is drawn for a machine: as soon as it is known, or when it stays as it is."""
    with machine_of(*MACHINES[on]) as machine, terminal_of(machine, *TFGPU, "top") as terminal:

        def drawn() -> list[str]:
            """Return each screen that was drawn to the end."""
            texts = CONTROL.sub("", terminal.said.replace(HOME, "\f")).split("\f")[1:-1]
            lines = ["\n".join(line.rstrip() for line in text.splitlines()).rstrip() for text in texts]
            return [alike(f"=== {on}\n{text}\n", {}) for text in lines]

        with suppress(AssertionError):  # the comparison tells what is not so
            until(drawn, lambda all_: all_ and (all_[-1] in known if known else all_[-9:] == all_[-1:] * 9))
        return drawn()[-1]
