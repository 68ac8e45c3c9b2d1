"""What was set stays until the system has said whose a cgroup is, and what is left as it was is told."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sizes import GIB
from tests.waiting import until
from tfgpu_magic.root import __main__ as program
from tfgpu_magic.root import cgroups, driver, file, trust
from tfgpu_magic.root.file import UNLIMITED

STUDENTS = '[limits]\ngroups.students = { hard = "10GiB" }\n'
NAMELESS = 1009


class Recorder(driver.Limiter):
    """A driver of one GPU that takes every limit."""

    def __init__(self) -> None:
        self.version, self.cards = "615", [driver.Card(0, "GPU-x", 80 * GIB, "", None)]
        self.asked: list[tuple[str, int]] = []

    def find_cards(self) -> None: ...

    def set(self, card: driver.Card, path: str, soft: int, hard: int) -> None:
        assert (card, soft) == (self.cards[0], 0)
        self.asked.append((Path(path).name, hard))


class Site:
    """A file and folders that look like cgroups, with a directory service that can hang."""

    def __init__(self, folder: Path) -> None:
        self.root, self.limiter, self.answers = folder / "cgroup", Recorder(), threading.Event()
        self.answers.set()
        self.away = False
        self.ann = self.make("user.slice/user-1001.slice")

    def make(self, name: str) -> Path:
        path = self.root / name
        path.mkdir(parents=True)
        return path

    def write(self, text: str) -> None:
        file.FILE.write_text(text)
        file.FILE.chmod(0o644)

    def start(self) -> program.Enforcer:
        """Begin a life of the service; what was asked of the driver before is forgotten."""
        self.limiter.asked.clear()
        enforcer = program.Enforcer(self.root, self.limiter, patience=60 if self.answers.is_set() else 0)
        enforcer.read_file()
        return enforcer

    def do(self, action: str, monkeypatch: pytest.MonkeyPatch) -> int:
        self.limiter.asked.clear()
        monkeypatch.setattr(sys, "argv", ["limits", action])
        return program.main()


def state() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(program.STATE.read_text())
    return read


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(trust, "ROOT", os.getuid())
    monkeypatch.setattr(trust, "flaw", lambda: "")
    monkeypatch.setattr(file, "FILE", tmp_path / "tfgpu_magic.toml")
    monkeypatch.setattr(program, "STATE", tmp_path / "run/limits.json")
    program.STATE.parent.mkdir()
    site = Site(tmp_path)

    def name(uid: int) -> SimpleNamespace:
        assert site.answers.wait(600)
        if uid == NAMELESS:
            raise KeyError
        return SimpleNamespace(pw_name=f"user{uid}", pw_gid=100)

    monkeypatch.setattr(cgroups, "pwd", SimpleNamespace(getpwuid=name, getpwnam=name))
    group = SimpleNamespace(gr_name="students")

    def known(name: str) -> SimpleNamespace:
        if name != group.gr_name or site.away:
            raise KeyError
        return group

    monkeypatch.setattr(cgroups, "grp", SimpleNamespace(getgrgid=lambda _: group, getgrnam=known))
    monkeypatch.setattr(os, "getgrouplist", lambda *_: [] if site.away else [100])
    monkeypatch.setattr(cgroups, "mount", lambda: (site.root, site.root))
    monkeypatch.setattr(program, "Limiter", lambda _: site.limiter)
    monkeypatch.setattr(program, "_take_lock", lambda: None)
    site.write(STUDENTS)
    yield site
    site.answers.set()


def test_a_restart_while_the_directory_hangs_takes_no_limit_away_and_heals(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.start().round()
    assert site.limiter.asked == [("user-1001.slice", 10 * GIB)]
    monkeypatch.setattr(program, "AGAIN", 10**9)  # who is missing is asked for without waiting for the next refresh
    site.answers.clear()
    service = site.start()

    news = service.round()
    bob = site.make("user.slice/user-1002.slice")  # who comes while the thread is busy
    service.round()

    assert news == [f"{site.ann} is left as it is: the groups of 1001 are not known yet"]
    assert site.limiter.asked == []
    assert state()["limits"] == {str(site.ann): {"GPU-x": [0, 10 * GIB, ""]}}
    assert state()["left"].keys() == {str(site.ann), str(bob)}

    site.answers.set()
    until(lambda: (service.round(), not service.left)[1])

    assert set(site.limiter.asked) == {("user-1001.slice", 10 * GIB), ("user-1002.slice", 10 * GIB)}


def test_once_fails_if_the_directory_hangs_and_waits_if_it_is_slow(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.answers.clear()
    monkeypatch.setattr(program, "LONG", 0.0)
    assert site.do("--once", monkeypatch) == 1
    assert "left as it is: the groups of 1001 are not known yet" in capsys.readouterr().out

    monkeypatch.setattr(program, "LONG", 600.0)
    threading.Timer(2 * cgroups.PATIENCE, site.answers.set).start()
    assert site.do("--once", monkeypatch) == 0
    assert site.limiter.asked == [("user-1001.slice", 10 * GIB)]


def test_who_comes_while_the_directory_hangs_has_what_is_for_everybody(site: Site) -> None:
    site.answers.clear()
    site.write(STUDENTS.replace("groups", 'hard = "20GiB"\ngroups'))
    service = site.start()

    service.round()
    service.round()

    assert site.limiter.asked == [(site.ann.name, 20 * GIB)]
    assert state()["left"].keys() == {str(site.ann)}
    site.answers.set()
    until(lambda: (service.round(), not service.left)[1])
    assert site.limiter.asked[1:] == [(site.ann.name, 10 * GIB)]


def test_a_directory_that_is_away_takes_nobody_out_of_a_group_of_the_file(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "AGAIN", 1)
    site.write(STUDENTS.replace("groups", 'hard = "20GiB"\ngroups'))
    service = site.start()
    service.round()
    site.away = True
    until(lambda: (service.round(), "limits.groups.students" in service.left)[1])
    service.round()

    assert {size for _, size in site.limiter.asked} == {10 * GIB}
    assert state()["limits"][str(site.ann)] == {"GPU-x": [0, 10 * GIB, ""]}


def test_a_user_without_a_name_has_what_is_for_everybody(site: Site) -> None:
    site.write(STUDENTS.replace("groups", 'hard = "20GiB"\ngroups'))
    nameless = site.make(f"user.slice/user-{NAMELESS}.slice")

    site.start().round()

    assert set(site.limiter.asked) == {(site.ann.name, 10 * GIB), (nameless.name, 20 * GIB)}


def test_a_unit_that_does_not_show_whose_it_is_keeps_its_limit(site: Site) -> None:
    unit = site.make("system.slice/jupyter-ann.service")
    (unit / "cgroup.procs").write_text("")
    program.STATE.write_text(json.dumps({"limits": {str(unit): {"GPU-x": [0, 40 * GIB, ""]}}}))

    news = site.start().round()

    assert f"{unit} is left as it is: no process in it shows whose it is" in news
    assert (unit.name, UNLIMITED) not in site.limiter.asked
    assert state()["limits"][str(unit)] == {"GPU-x": [0, 40 * GIB, ""]}

    site.write(f'[limits.paths]\n"{unit}" = {{ hard = "1GiB" }}\n')  # which says it, whosever it is
    service = site.start()
    service.round()
    assert (unit.name, GIB) in site.limiter.asked
    assert not service.left


def test_a_folder_may_end_with_a_slash_and_one_that_is_missing_is_told(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = site.make("system.slice/batch.service")
    site.write(f'[limits.paths]\n"{batch}/" = {{ hard = "50%" }}\n')
    assert site.do("--once", monkeypatch) == 0
    assert site.limiter.asked == [(batch.name, 40 * GIB)]

    site.write(f'[limits.paths]\n"{batch}x" = {{ hard = "50%" }}\n')
    assert site.do("--once", monkeypatch) == 1
    assert f"{batch}x is left as it is: there is no such cgroup" in capsys.readouterr().out
    assert state()["left"].keys() == {f"{batch}x"}
    assert site.limiter.asked == [(batch.name, UNLIMITED)]


def test_a_slice_that_goes_while_slices_are_listed_ends_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    glob = Path.glob

    def failing(self: Path, pattern: str) -> Iterator[Path]:
        yield from glob(self, pattern)
        raise FileNotFoundError

    monkeypatch.setattr(Path, "glob", failing)

    site.start().round()

    assert site.limiter.asked == [(site.ann.name, 10 * GIB)]


@pytest.mark.parametrize("words", [["--help"], ["--once", "--clear"], ["once"]])
def test_what_is_not_known_sets_nothing(words: list[str], site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["limits", *words])

    assert program.main() == 2
    assert site.limiter.asked == []
    assert not program.STATE.exists()


def test_clear_goes_by_no_file(site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    site.do("--once", monkeypatch)
    site.write("[limits]\nhard = 7\n")
    capsys.readouterr()

    assert site.do("--clear", monkeypatch) == 0
    assert "stay as they were" not in capsys.readouterr().out
    assert site.limiter.asked == [(site.ann.name, UNLIMITED)]
