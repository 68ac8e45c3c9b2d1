"""`python -I -m tfgpu_magic.root`: has the driver hold users to the administrator's limits; `tfgpu limits` runs it."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tfgpu_magic.root import cgroups, file, trust
from tfgpu_magic.root.driver import Card, Failed, Limiter, TooOld
from tfgpu_magic.root.file import UNLIMITED, Limits, Mistake, Rules

STATE = Path("/run/tfgpu_limits/limits.json")  # what is in force, for all to read; its time tells that this lives
TICK = 1.0  # seconds between two rounds
AGAIN = 60  # rounds after which all is set again: systemd, which passes controllers on, may have dropped limits


class Target(NamedTuple):
    """What is to hold of a GPU for a cgroup, in bytes, and why it does not; empty if it does."""

    soft: int
    hard: int
    why: str = ""

    def __str__(self) -> str:
        soft, hard = (f"{size / 2**30:.4g} GiB" if 0 < size < UNLIMITED else "none" for size in self[:2])
        return f"hard {hard}, soft {soft}" + (f": NOT in force, {self.why}" if self.why else "")


class Enforcer:
    """Reads the file and the cgroups, and has the driver hold what follows; a mistake in the file changes nothing."""

    def __init__(self, root: Path, limiter: Limiter) -> None:
        self.limiter, self._listing = limiter, cgroups.Listing(root)
        self.rules: Rules | None = None
        self.flaw = ""
        self._texts: tuple[bytes | None, bytes | None] = None, None  # what was read last, and what the rules are of
        self._rounds, self._in_force = 0, dict[tuple[cgroups.Cgroup, str], Target]()
        limits = json.loads(STATE.read_bytes())["limits"] if STATE.exists() else {}
        self.ours = {path: {uuid: Target(*one) for uuid, one in gpus.items()} for path, gpus in limits.items()}
        """What this program has set, by cgroup and GPU, also in a life before this one."""

    def read_file(self, *, settled: bool = False) -> None:
        """Read the rules; if ``settled``, only from a text that was the same a round before: it may be half written."""
        last, taken = self._texts
        try:
            text = file.read(file.FILE)
            self._texts = text, taken
            if text != taken and (text == last or not settled):
                self.rules, self.flaw, self._texts = file.parse(text), "", (text, text)
        except Mistake as error:
            self.flaw, self._texts = str(error), (self._texts[0], None)

    def wanted(self) -> Iterator[tuple[cgroups.Cgroup, Card, Target]]:
        """Give what is to hold for each cgroup on each GPU, where anything is said or was set."""
        rules = self.rules or Rules()
        for one in self._listing.read({*rules.paths, *self.ours}, again=self._rounds % AGAIN == 0):
            of_user = rules.of(one.user.names, one.user.groups) if one.user else Limits()
            limits = rules.paths.get(one.path, of_user)
            for card in self.limiter.cards:
                if any(limits) or card.uuid in self.ours.get(one.path, {}):
                    lost = card.total is None and "%" in "".join(limits)
                    why = "its size is unknown within a limited cgroup" if lost else card.why
                    yield one, card, Target(*limits.in_bytes(card.total or 0), why)

    def round(self) -> list[str]:
        """Set what is not in force yet, and write what is; return what is new, a sentence each."""
        news, ours = list[str](), dict[str, dict[str, Target]]()
        in_force: dict[tuple[cgroups.Cgroup, str], Target] = {}
        for cgroup, card, outcome in self.wanted() if self.rules else ():
            if not outcome.why and (self._rounds % AGAIN == 0 or self._in_force.get((cgroup, card.uuid)) != outcome):
                try:
                    self.limiter.set(card, cgroup.path, outcome.soft, outcome.hard)
                except Failed as error:
                    outcome = outcome._replace(why=str(error))
            in_force[cgroup, card.uuid] = outcome
            if outcome != (0, UNLIMITED, ""):
                ours.setdefault(cgroup.path, {})[card.uuid] = outcome
            if outcome != self.ours.get(cgroup.path, {}).get(card.uuid):
                news.append(_line(cgroup, card, outcome))
        self._rounds += 1
        if self.rules:
            self.ours, self._in_force = ours, in_force
        new = STATE.with_suffix(".new")
        new.write_text(json.dumps({"driver": self.limiter.version, "flaw": self.flaw, "limits": self.ours}))
        new.replace(STATE)
        return news

    def show(self, *, only_changes: bool) -> None:
        """Print what the driver holds each cgroup to, and what the file says of it if that is something else."""
        for cgroup, card, outcome in self.wanted():
            try:
                soft, hard, used = self.limiter.get(card, cgroup.path)
                now, held = Target(soft, hard), f"; {used / 2**30:.4g} GiB are held"
            except Failed as error:
                now, held = outcome._replace(why=str(error)), ""
            if now != outcome or not only_changes:
                print(f"{_line(cgroup, card, now)}{held}" + (f"; by the file {outcome}" if now != outcome else ""))


def _line(cgroup: cgroups.Cgroup, card: Card, outcome: Target) -> str:
    return f"{cgroup.path}{f' of {cgroup.user.name}' if cgroup.user else ''}, GPU {card.number}: {outcome}"


def main() -> int:
    """Do what the command line says, and return the exit status; 0 too where the driver is too old for limits."""
    try:
        (action,) = sys.argv[1:] or ["--show"]
        return _do(action, changes=action not in ("--show", "--dry-run"))
    except (Failed, TooOld) as error:
        print(f"No limit is set: {error}.", flush=True)
        return 0 if isinstance(error, TooOld) else 1


def _do(action: str, *, changes: bool) -> int:
    mounted, flaw = cgroups.mount(), trust.flaw() if os.geteuid() == trust.ROOT else "only root may do this" * changes
    if flaw or mounted is None:
        raise Failed(flaw or "cgroups of version 2 are not mounted")
    if changes:
        _alone()
    enforcer, told = Enforcer(mounted[0], Limiter(str(mounted[1]))), ""
    enforcer.read_file()
    enforcer.rules = Rules() if action == "--clear" else enforcer.rules
    while True:
        if told != (told := enforcer.flaw):
            print(f"The limits stay as they were: {told}" if told else "The file is without mistakes.", flush=True)
        if not changes:
            enforcer.show(only_changes=action == "--dry-run")
        elif news := enforcer.round():
            print(*news, sep="\n", flush=True)
        if action != "--watch":
            return int(bool(told) or any(one.why for gpus in enforcer.ours.values() for one in gpus.values()))
        time.sleep(TICK)
        enforcer.read_file(settled=True)


def _alone() -> None:
    """Make this the only process that sets limits; the lock is root's alone, so that no other user can hold it."""
    os.umask(0o022)
    STATE.parent.mkdir(exist_ok=True)
    lock = os.open(STATE.with_name("lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Failed("another one does it already: systemctl status tfgpu-limits") from None


if __name__ == "__main__":
    sys.exit(main())
