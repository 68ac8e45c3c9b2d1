"""The bound on the sum, as data: how it is written, when more is held, and what is said of it."""

from __future__ import annotations

import grp
import os
import pwd
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.sizes import GIB, MIB
from tests.waiting import until
from tfgpu_magic import policy
from tfgpu_magic.doctor.machine import ThisMachine
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.lab import bound, file
from tfgpu_magic.lab.bound import OverBound, bound_of, over
from tfgpu_magic.lab.idle_check import BOUND, BOUND_FLAWED, HOLDS, idle
from tfgpu_magic.lab.ladder import rule_of
from tfgpu_magic.model.rows import GpuRow, ProcessRow, Table
from tfgpu_magic.root import file as limits_file
from tfgpu_magic.simgpu import Machine

FILE = {
    "hard": "40%",
    "groups": {"staff": {"hard": "90%"}, "guests": {"hard": "none"}},
    "users": {"ann": {"hard": "60GiB"}, "1002": {}},
}


@pytest.mark.parametrize(
    ("names", "groups", "amount"),
    [
        ({"cy", "1003"}, {"users"}, "40%"),
        ({"cy", "1003"}, {"guests", "staff"}, "90%"),
        ({"cy", "1003"}, {"guests"}, ""),
        ({"ann", "1001"}, {"staff"}, "60GiB"),
        ({"ben", "1002"}, {"staff"}, "90%"),
        ({"root", "0"}, set(), ""),
    ],
)
def test_a_user_has_the_entry_that_limits_would_take(names: set[str], groups: set[str], amount: str) -> None:
    text = '[limits]\nhard="40%"\ngroups.staff={hard="90%"}\ngroups.guests={hard="none"}\nusers.ann={hard="60GiB"}'
    rules = limits_file.parse(text.encode())

    assert rules is not None
    assert bound_of(FILE, names, groups) == amount
    assert rules.of(frozenset(names), frozenset(groups)).hard in ((amount, "none") if not amount else (amount,)) or (
        "0" in names
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file | {"soft": "10%"},
        lambda file: file | {"hard": 40},
        lambda file: file | {"hard": "40"},
        lambda file: file | {"hard": "0%"},
        lambda file: file | {"hard": "101%"},
        lambda file: file | {"hard": "4 gib"},
        lambda file: file | {"hard": ""},
        lambda file: file | {"paths": {}},
        lambda file: file | {"groups": {"staff": "90%"}},
        lambda file: file | {"users": {"ann": {"hard": "9000000TiB"}}},
        lambda file: file | {"users": ["ann"]},
        lambda _: "40%",
    ],
)
def test_a_flawed_table_is_of_no_use_to_anybody(change: Callable[[object], object]) -> None:
    with pytest.raises(PolicyError, match=r"^\[bound\].*\.$"):
        bound_of(change(FILE), (), ())


@pytest.mark.parametrize(
    "amount", ["40%", "33.333%", "100%", "32GiB", "512MiB", "1.5TiB", "60GB", "999 MB", "1TB", "7KiB", "7", "none", ""]
)
def test_an_amount_is_what_it_is_in_limits(amount: str) -> None:
    assert (bound.size(amount, 80 * GIB) or 0) == limits_file.size(amount, 80 * GIB)


GPU = GpuRow(gpu="0", name="A100", total=16 * GIB)
MINE = ProcessRow(gpu="0", pid=7, kind="C", who="mine", owner="a.ipynb", held=5 * GIB)
THIS = replace(MINE, pid=8, who="this", held=3 * GIB)
OTHERS = replace(MINE, pid=9, who="other", held=4 * GIB)


def found(*rows: ProcessRow, gpu: GpuRow = GPU, amount: str = "40%") -> Any:
    return over(Table(time=1.0, gpus=(gpu,), processes=rows), amount)


def test_all_processes_of_the_user_are_counted_together_by_gpu() -> None:
    most = int(6.4 * 1024) * MIB

    assert found(MINE, OTHERS) == {}
    assert found(MINE, replace(THIS, gpu="1")) == {}
    assert found(MINE, THIS, OTHERS) == {"0": OverBound(8 * GIB, most)}
    assert found(MINE, THIS, amount="8GiB") == {}  # as much as may be held
    assert found(MINE, THIS, amount="") == {}


@pytest.mark.parametrize(
    ("rows", "gpu"),
    [
        ((MINE, THIS, replace(MINE, pid=10, held=None)), GPU),
        ((MINE, THIS), replace(GPU, total=None)),
        ((MINE, THIS), replace(GPU, limit=4 * GIB)),
    ],
    ids=["bytes are unknown", "the total is unknown", "the driver limits the cgroup"],
)
def test_nothing_is_found_of_a_gpu(rows: tuple[ProcessRow, ...], gpu: GpuRow) -> None:
    assert found(*rows, gpu=gpu) == {}


@pytest.fixture
def administrators_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(policy, "FILE", tmp_path / "tfgpu_magic.toml")
    monkeypatch.setattr(bound, "_own", bound._Own())
    monkeypatch.setattr(bound, "READ_TIMEOUT", 60.0)
    return policy.FILE


def test_every_view_says_it_below_its_table(administrators_file: Path) -> None:
    administrators_file.write_text('[bound]\nhard = "8GiB"\n' + f'users.{os.geteuid()} = {{ hard = "6GiB" }}')
    table = Table(time=1.0, gpus=(GPU,), processes=(MINE, THIS))

    (note,) = bound.notes(table)

    assert note == f"Your processes together hold 8 GiB of GPU 0. {administrators_file} allows 6 GiB."
    assert bound.notes(replace(table, processes=(MINE,))) == []


def test_a_directory_of_users_that_is_slow_is_asked_once_and_its_late_answer_counts(
    administrators_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    administrators_file.write_text(f'[bound]\nusers.{os.geteuid()} = {{ hard = "6GiB" }}')
    table, asked, end = Table(time=1.0, gpus=(GPU,), processes=(MINE, THIS)), list[object](), threading.Event()

    def slow(user: object = None) -> frozenset[str]:
        asked.append(user)
        end.wait()
        return frozenset({str(os.geteuid())})

    monkeypatch.setattr(file, "names_of", slow)
    monkeypatch.setattr(bound, "READ_TIMEOUT", 0.01)
    monkeypatch.setattr(bound, "READ_EVERY", 1e9)
    assert [bound.notes(table), bound.notes(table)] == [[], []]
    end.set()
    assert len(until(lambda: bound.notes(table))) == 1
    assert len(asked) == 1


@pytest.mark.parametrize("text", ["", "[bound", "[bound]\nsoft = 1", '[limits]\nhard = "1GiB"'])
def test_no_view_says_anything_without_a_bound_that_is_in_force(administrators_file: Path, text: str) -> None:
    administrators_file.write_text(text)

    assert bound.notes(Table(time=1.0, gpus=(GPU,), processes=(MINE, THIS))) == []


def test_the_doctor_says_what_may_be_held_and_what_is_wrong(administrators_file: Path) -> None:
    administrators_file.write_text(f'[bound]\nusers.{os.geteuid()} = {{ hard = "40%" }}')
    (holds,) = idle(ThisMachine())
    administrators_file.write_text('[bound]\nhard = "40 percent"')
    (flawed,) = idle(ThisMachine())
    administrators_file.write_text('[idle]\nnotify = "1m"\nstop = "2.5h"\n[bound]\nhard = 40')
    hours, broken = idle(ThisMachine())

    assert (holds.outcome, holds.facts["amount"]) == (BOUND, "40%")
    assert (hours.outcome, hours.facts["steps"]) == (
        HOLDS,
        "reported to its owner after 1 min, shut down after 2 h 30 min",
    )
    assert broken.outcome == BOUND_FLAWED
    assert flawed.outcome == BOUND_FLAWED
    assert flawed.facts["flaw"] == """[bound]: hard is '40 percent'. Write "40%", "32GiB" or "none"."""


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ('[bound]\nhard = "40%"', True),
        ('[bound]\nusers.ann = { hard = "none" }', False),
        ('[bound]\ngroups.staff = { hard = "90%" }', False),
        (f'[bound]\nusers.{os.geteuid()} = {{ hard = "9GiB" }}\ngroups.staff = {{ hard = "90%" }}', True),
        (f'[bound]\ngroups.{os.getegid()} = {{ hard = "9GiB" }}\ngroups.staff = {{ hard = "90%" }}', True),
        ('[idle]\nnotify = "2h"\nstop = "24h"', True),
        ('[idle]\nnotify = "2h"\nstop = "24h"\ngroups.staff = { stop = "never" }', False),
    ],
)
def test_while_the_directory_of_users_is_away_nobody_falls_to_what_is_for_everybody(
    administrators_file: Path, monkeypatch: pytest.MonkeyPatch, text: str, known: bool
) -> None:
    def away(number: int) -> NoReturn:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", away)
    monkeypatch.setattr(grp, "getgrgid", away)
    administrators_file.write_text(text)
    with nullcontext() if known else pytest.raises(PolicyError, match=r"names '(ann|staff)', and .* has no name now"):
        bound.of_user()
        rule_of(file.table("idle") or {}, file.groups_of())


STATUS = """
import sys
from pathlib import Path
from tfgpu_magic import policy

policy.FILE = Path(sys.argv[1])
from tfgpu_magic.command.dispatch import answer

sys.exit(answer(["status"]))
"""


def test_tfgpu_status_tells_it_of_all_processes_of_the_user(machine: Machine, tmp_path: Path) -> None:
    place = tmp_path / "tfgpu_magic.toml"
    place.write_text(f'[bound]\nusers.{os.geteuid()} = {{ hard = "25%" }}')
    for _ in range(2):
        machine.add_neighbour("3GiB@1")

    def status() -> str:
        command = [sys.executable, "-c", STATUS, str(place)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    said = rf"Your processes together hold 6\.?\d* GiB of GPU 1\. {place} allows 4 GiB\."
    until(status, lambda text: re.search(said, text))
