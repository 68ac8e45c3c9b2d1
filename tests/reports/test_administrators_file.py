"""What administrators wrote into their file, as they met it: a name that nobody has is a mistake, and told."""

from __future__ import annotations

import asyncio
import grp
import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from tfgpu_magic import policy
from tfgpu_magic.doctor.checks.idle import idle
from tfgpu_magic.doctor.machine import ThisMachine
from tfgpu_magic.ground.rows import Notebook
from tfgpu_magic.lab.idle_actions import IdleSteps

HOURS = '[idle]\nnotify = "1h"\nstop = "4h"\n'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(policy, "FILE", tmp_path / "tfgpu_magic.toml")
    return policy.FILE


UNKNOWN = 'groups.h-staf = { stop = "never" }'
MINE = os.getegid()


@pytest.mark.parametrize(
    ("rest", "flaw"),
    [
        (UNKNOWN, "'h-staf'"),
        (f'groups.{MINE} = {{ stop = "never" }}\n{UNKNOWN}', "'h-staf'"),  # after one that this user is in
        *((f'groups.{group} = {{ stop = "never" }}', "") for group in (MINE, "99999", "root")),
    ],
)
def test_machine_4_a_group_that_nobody_has_leaves_all_idle_notebooks_alone_and_the_doctor_says_so(
    file: Path, rest: str, flaw: str
) -> None:
    file.write_text(HOURS + rest)
    (found,) = idle(ThisMachine())

    assert found.name == ("idle.flawed" if flaw else "idle.holds")
    assert flaw in str(found.facts.get("flaw"))


def steps_of(notebooks: dict[int, Notebook]) -> IdleSteps:
    async def known() -> dict[int, Notebook]:
        return notebooks

    return IdleSteps(SimpleNamespace(notebooks=known), logging.getLogger(), every=0.01)  # type: ignore[arg-type]


@pytest.mark.parametrize(("rest", "known"), [("", True), ('groups.staff = { stop = "never" }', False)])
def test_while_the_directory_of_users_is_away_nobody_falls_to_what_is_for_everybody(
    file: Path, monkeypatch: pytest.MonkeyPatch, rest: str, known: bool
) -> None:
    def away(number: int) -> NoReturn:
        raise KeyError(number)

    monkeypatch.setattr(grp, "getgrgid", away)
    file.write_text(HOURS + rest)
    (found,) = idle(ThisMachine())

    assert found.name == ("idle.holds" if known else "idle.flawed")
    assert known or "names 'staff', and the group " in str(found.facts["flaw"])


@pytest.mark.parametrize("closed", [True, False])
def test_machine_13_in_a_server_of_a_hub_the_doctor_finds_that_users_can_turn_the_steps_off(
    file: Path, *, closed: bool
) -> None:
    file.write_text(HOURS)
    environ = {"JUPYTERHUB_USER": "ann", **({"JUPYTERHUB_DISABLE_USER_CONFIG": "1"} if closed else {})}
    found = [one.name for one in idle(ThisMachine(environ=environ))]

    assert found == ["idle.holds", *([] if closed else ["idle.avoidable"])]


def test_machine_13_a_server_without_kernels_reads_no_gpu_for_the_idle_table(file: Path) -> None:
    """A collector would keep a laptop's GPU awake for as long as JupyterLab is open; it would be a process of this."""
    file.write_text(HOURS)

    steps = steps_of({})
    asyncio.run(steps.check())
    known = steps.read()
    steps.close()

    assert known == {"notebooks": []}
