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
ACTIONS = ("--show", "--dry-run", "--once", "--watch", "--clear")
TICK = 1.0  # seconds between two rounds
LONG = 10.0  # seconds for which a single round waits for the names of users
ABSENT = "there is no such cgroup that root alone can make"
NAMELESS = "this machine knows no such name, or not now. Mend the name, or write the number"
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

    def __init__(self, root: Path, limiter: Limiter, patience: float = cgroups.PATIENCE) -> None:
        self.limiter, self._listing = limiter, cgroups.Listing(root, patience)
        self.rules: Rules | None = None
        self.flaw = ""
        self._rounds, self._in_force = 0, dict[tuple[cgroups.Cgroup, str], Target]()
        limits = json.loads(STATE.read_bytes())["limits"] if STATE.exists() else {}
        self.ours = {path: {uuid: Target(*one) for uuid, one in gpus.items()} for path, gpus in limits.items()}
        """What this program has set, by cgroup and GPU, also in a life before this one."""
        self.left = dict[str, str]()  # the cgroups that are left as they are, and why

    def read_file(self) -> None:
        """Read the rules; a mistake leaves the old ones."""
        try:
            self.rules, self.flaw = file.parse(file.read(file.FILE)), ""
        except Mistake as error:
            self.flaw = str(error)

    def wanted(self) -> Iterator[tuple[cgroups.Cgroup, Card, Target]]:
        """Yield what is to hold for each cgroup on each GPU, where anything is said or was set."""
        rules = self.rules or Rules()
        again = self._rounds % AGAIN == 0
        found = self._listing.read({*rules.paths, *self.ours}, rules.users, rules.groups, again=again)
        self.left = dict.fromkeys(rules.paths.keys() - {one.path for one in found}, ABSENT)
        if any((*rules.everybody, rules.users, rules.groups)):
            self.left |= {one.path: one.why for one in found if one.why and one.path not in rules.paths}
        self.left |= dict.fromkeys(self._listing.nameless, NAMELESS)
        for one in found:
            if one.path in self.left and (one.path in self.ours or not one.user):
                continue  # but who comes meanwhile has what is for everybody
            of_user = rules.of(one.user.names, one.user.groups) if one.user else Limits()
            limits = rules.paths.get(one.path, of_user)
            for card in self.limiter.cards:
                if any(limits) or card.uuid in self.ours.get(one.path, {}):
                    lost = card.total is None and "%" in "".join(limits)
                    why = "its size is unknown within a limited cgroup" if lost else card.why
                    yield one, card, Target(*limits.in_bytes(card.total or 0), why)

    def round(self) -> list[str]:
        """Set what is not in force yet, and write what is; return what is new, a sentence each."""
        if self._rounds and self._rounds % AGAIN == 0:
            self.limiter.find_cards()
        in_force, before, self.left = dict[tuple[cgroups.Cgroup, str], Target](), self.left, {}
        wanted = list(self.wanted()) if self.rules else []
        news = [f"{path} is left as it is: {why}" for path, why in self.left.items() if before.get(path) != why]
        ours = {path: gpus for path, gpus in self.ours.items() if self.left.get(path, ABSENT) != ABSENT}
        for cgroup, card, outcome in wanted:
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
        state = {"driver": self.limiter.version, "flaw": self.flaw, "limits": self.ours, "left": self.left}
        new.write_text(json.dumps(state))
        new.replace(STATE)
        return news

    def show(self, *, only_changes: bool) -> None:
        """Print what the driver holds each cgroup to, and what the file says if that is something else."""
        for cgroup, card, outcome in self.wanted():
            try:
                soft, hard, used = self.limiter.get(card, cgroup.path)
                now, held = Target(soft, hard), f"; {used / 2**30:.4g} GiB are held"
            except Failed as error:
                now, held = outcome._replace(why=str(error)), ""
            if now != outcome or not only_changes:
                print(f"{_line(cgroup, card, now)}{held}" + (f"; by the file {outcome}" if now != outcome else ""))
        print(*(f"{path} is left as it is: {why}\n" for path, why in self.left.items()), sep="", end="")


def _line(cgroup: cgroups.Cgroup, card: Card, outcome: Target) -> str:
    return f"{cgroup.path}{f' of {cgroup.user.name}' if cgroup.user else ''}, GPU {card.number}: {outcome}"


def main() -> int:
    """Do what the command line says, and return the exit status; 0 too where the driver is too old for limits."""
    action, *more = sys.argv[1:] or ["--show"]
    if more or action not in ACTIONS:
        print("usage: python -I -m tfgpu_magic.root", f"[{'|'.join(ACTIONS)}]")
        return 2
    try:
        return _do(action, changes=action not in ACTIONS[:2])
    except (Failed, TooOld) as error:
        print(f"{'No limit is set' if isinstance(error, TooOld) else 'Nothing was done'}: {error}.", flush=True)
        return 0 if isinstance(error, TooOld) else 1


def _do(action: str, *, changes: bool) -> int:
    mounted, flaw = cgroups.mount(), trust.flaw() if os.geteuid() == trust.ROOT else "only root may do this" * changes
    if flaw or mounted is None:
        raise Failed(flaw or "cgroups of version 2 are not mounted")
    if changes:
        _take_lock()
    patience = cgroups.PATIENCE if action == "--watch" else LONG
    enforcer, told = Enforcer(mounted[0], Limiter(str(mounted[1])), patience), ""
    while True:
        if action == "--clear":  # whatever the file says
            enforcer.rules = Rules()
        else:
            enforcer.read_file()
        if told != (told := enforcer.flaw):
            print(f"The limits stay as they were: {told}" if told else "The file is without mistakes.", flush=True)
        if not changes:
            enforcer.show(only_changes=action == "--dry-run")
        elif news := enforcer.round():
            print(*news, sep="\n", flush=True)
        if action != "--watch":
            failed = [one for gpus in enforcer.ours.values() for one in gpus.values() if one.why]
            return int(bool(told or failed or (changes and enforcer.left)))
        time.sleep(TICK)


def _take_lock() -> None:
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
