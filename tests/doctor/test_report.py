"""The report itself: its text in 80 columns, its JSON without anything private, and checks that fail or hang."""

from __future__ import annotations

import ast
import inspect
import os
import pty
import re
import string
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command.shell import TFGPU
from tests.doctor import looking
from tests.machines import machine_of
from tests.processes import PATIENCE, QUIET
from tests.waiting import until
from tfgpu_magic.doctor import table
from tfgpu_magic.doctor.finding import Outcome, Severity
from tfgpu_magic.doctor.machine import Machine as Here
from tfgpu_magic.doctor.table import CHECKS, Check, examine
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.views import doctor

absent = machine_of("1x8GiB", scope="function")

FULL = Outcome("full", Severity.WARNING, "{left_bytes} are left of {places}.", "Do this:\n  rm -r {path}")
CALM = Outcome("calm", Severity.GOOD, "All is well.")


# --- as text ---


def test_a_finding_is_a_line_with_what_to_do_below_and_its_title_stands_once() -> None:
    text = doctor.text("Disk", [FULL(left_bytes=3 * 2**30, places=["/a", "/b"], path="/a/b"), CALM()])

    assert text.splitlines() == [
        " warning  Disk           3 GiB are left of /a, /b.",
        "                         Do this:",
        "    rm -r /a/b",
        " good                    All is well.",
    ]


def test_what_is_unknown_is_said_to_be_and_control_characters_do_nothing() -> None:
    finding = FULL(left_bytes=None, places=[], path="\x1b[2J")

    assert doctor.found(finding) == "unknown are left of none."
    assert doctor.what_next(finding) == "Do this:\n  rm -r ?[2J"


def test_colours_are_for_the_words_only() -> None:
    plain, coloured = (doctor.text("Disk", [CALM()], coloured=on) for on in (False, True))

    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain
    assert coloured.startswith(" \x1b[32mgood   \x1b[0m  Disk")


def test_the_summary_counts_what_needs_attention() -> None:
    findings = [FULL(), FULL(), CALM()]

    assert doctor.summary(findings).startswith("no faults, 2 warnings, no notes. ")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_every_outcome_has_room_in_80_columns(check: Check) -> None:
    for outcome in check.outcomes:
        names = {name for _, name, _, _ in string.Formatter().parse(outcome.found + outcome.next) if name}
        long = doctor.text(check.title, [outcome(**dict.fromkeys(names, "word " * 40))])
        short = doctor.text(check.title, [outcome(**dict.fromkeys(names, "0"))])

        assert [line for line in long.splitlines() if len(line) > doctor.WIDTH and "word" not in line] == []
        assert [line for line in short.splitlines() if len(line) > doctor.WIDTH] == []


# --- the table ---


def test_every_check_is_a_module_and_an_entry() -> None:
    modules = {path.stem for path in Path(inspect.getfile(table)).with_name("checks").glob("*.py")} - {"__init__"}

    assert [check.name for check in CHECKS] == list(dict.fromkeys(check.name for check in CHECKS))
    assert {check.name for check in CHECKS} == modules


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_outcomes_are_told_apart_and_say_what_to_do_about_a_fault(check: Check) -> None:
    names = [outcome.name for outcome in check.outcomes]
    silent = [one.name for one in check.outcomes if one.severity is Severity.FAULT and not one.next]

    assert len(names) == len(set(names))
    # These faults are the sentences of others, which say it themselves; and a process that ended, its last words.
    assert set(silent) <= {"fails", "ended", "unusable", "failed"}


def _made(check: Check) -> Iterator[tuple[str, set[str] | None]]:
    """Give each outcome that a check's code makes, with the facts that it gives; None where they are not in sight."""
    for node in ast.walk(ast.parse(inspect.getsource(sys.modules[check.module.__name__]))):
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id == "Outcome"):
            given = {word.arg for word in node.keywords}
            facts = None if None in given else {word for word in given if word}
            yield from ((name.id, facts) for name in ast.walk(node.func) if isinstance(name, ast.Name))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_every_outcome_is_made_and_has_the_facts_that_it_names(check: Check) -> None:
    made = list(_made(check))
    for name, outcome in vars(sys.modules[check.module.__name__]).items():
        if isinstance(outcome, Outcome):
            named = {name for _, name, _, _ in string.Formatter().parse(outcome.found + outcome.next) if name}
            given = [facts for maker, facts in made if maker == name]

            assert given, f"{name} is never found"
            assert [facts for facts in given if facts is not None and not named <= facts] == []


# --- whatever a check meets ---


class _Fails:
    __name__ = "fails"

    def check(self, machine: Here) -> Iterator[object]:  # noqa: ARG002
        raise OSError("the disk is gone")


class _Hangs:
    __name__ = "hangs"

    def __init__(self) -> None:
        self.ended = threading.Event()

    def check(self, machine: Here) -> Iterator[object]:  # noqa: ARG002
        self.ended.wait(PATIENCE)
        yield from ()


def test_a_check_that_fails_or_hangs_is_told_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = _Hangs()
    (failed,) = examine(Check("Fails", _Fails()), Here())  # type: ignore[arg-type]
    monkeypatch.setattr(table, "LONGEST", 0.2)
    (hung,) = examine(Check("Hangs", hanging), Here())  # type: ignore[arg-type]
    monkeypatch.setattr(table, "LONGEST", PATIENCE)
    (after,) = examine(Check("Fails", _Fails()), Here())  # type: ignore[arg-type]
    hanging.ended.set()

    assert (failed.outcome, failed.facts["why"]) == (table.BROKEN, "OSError: the disk is gone")
    assert hung.outcome == table.HANGS
    assert after.outcome == table.BROKEN  # it was done, though the one before still hangs
    until(lambda: all(thread.name != "tfgpu_magic-bounded" for thread in threading.enumerate()))


# --- what leaves the machine ---


def test_the_json_has_no_secret_and_no_home(absent: Machine, tmp_path: Path) -> None:
    absent.remove_driver()
    home = tmp_path / "maria"
    (home / ".ipython" / "profile_default").mkdir(parents=True)
    (home / ".ipython" / "profile_default" / "ipython_config.py").write_text("1 / 0")
    secrets = {"JUPYTER_TOKEN": "s3cret-1", "API_KEY": "s3cret-2", "JUPYTERHUB_API_TOKEN": "s3cret-3"}
    environ = {
        **secrets, "HOME": str(home), "IPYTHONDIR": str(home / ".ipython"),
        "TFGPU_MAGIC_DIR": str(home / "board"),
    }  # fmt: skip
    done = looking.doctor(absent, "--json", env=environ)
    report = looking.read(done.stdout)

    assert done.returncode == 1
    assert "s3cret" not in done.stdout
    assert "maria" not in done.stdout
    assert report.facts("board.directory")["directory"] == "~/board"
    assert report.facts("policy.broken")["file"] == "~/.ipython/profile_default/ipython_config.py"


def test_in_a_terminal_it_has_colours_and_elsewhere_none(absent: Machine) -> None:
    absent.hang("nvmlInit", 3600)  # TensorFlow is left alone then
    ours, theirs = pty.openpty()
    command = [*TFGPU, "doctor"]
    process = absent.popen(command, stdout=theirs, stderr=subprocess.STDOUT, env={**QUIET, "TERM": "xterm"})
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # the terminal's other end is closed
        pass
    finally:
        os.close(ours)
    piped = looking.doctor(absent, env={"TERM": "xterm"})

    assert (process.wait(), piped.returncode) == (1, 1)
    assert b"\x1b[1;31mfault  \x1b[0m" in shown
    assert "\x1b" not in piped.stdout
    assert " fault    Driver" in piped.stdout
