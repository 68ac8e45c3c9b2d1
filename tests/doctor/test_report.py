"""The report itself: its text in 80 columns, its JSON without anything private, and checks that fail or hang."""

from __future__ import annotations

import ast
import inspect
import json
import platform
import string
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.command.shell import TFGPU, terminal_of
from tests.doctor import looking
from tests.machines import machine_of
from tests.processes import PATIENCE
from tests.waiting import until
from tfgpu_magic.doctor import finding as doctor
from tfgpu_magic.doctor.checks import table
from tfgpu_magic.doctor.checks.table import CHECKS, declared_outcomes, run_check
from tfgpu_magic.doctor.finding import REPORT, outcome
from tfgpu_magic.doctor.machine import ThisMachine as Here
from tfgpu_magic.ground.message import Line, Message, Severity, msg
from tfgpu_magic.simgpu import Machine

absent = machine_of("1x8GiB", scope="function")

FULL = outcome("full", Severity.WARNING, "{left_bytes} are left of {places}.", "Do this:\n  rm -r {path}")
CALM = outcome("calm", Severity.GOOD, "All is well.")


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

    assert REPORT.found(finding) == "unknown are left of none."
    assert REPORT.next(finding) == "Do this:\n  rm -r ?[2J"


def test_the_summary_counts_what_needs_attention() -> None:
    findings = [FULL(), FULL(), CALM()]

    assert doctor.summary(findings).startswith("no faults, 2 warnings, no notes. ")


@pytest.mark.parametrize("title", CHECKS)
def test_every_outcome_has_room_in_80_columns(title: str) -> None:
    for one in declared_outcomes(CHECKS[title]):
        names = {name for _, name, _, _ in string.Formatter().parse(one.template + one.next) if name}
        long = doctor.text(title, [one(**dict.fromkeys(names, "word " * 40))])
        short = doctor.text(title, [one(**dict.fromkeys(names, "0"))])

        assert [line for line in long.splitlines() if len(line) > doctor.WIDTH and "word" not in line] == []
        assert [line for line in short.splitlines() if len(line) > doctor.WIDTH] == []


# --- the table ---


def declared() -> Iterator[tuple[ModuleType, str, Message]]:
    """Give each outcome that the checks' modules declare, with its module and the name of its constant."""
    for module in {sys.modules[check.__module__]: None for check in CHECKS.values()}:
        yield from ((module, name, value) for name, value in vars(module).items() if isinstance(value, Message))


def test_every_outcome_is_of_a_check_is_told_apart_and_says_what_to_do_about_a_fault() -> None:
    names = [one.name for _, _, one in declared()]
    silent = {one.name for _, _, one in declared() if one.severity is Severity.FAULT and not one.next}

    assert len(names) == len(set(names))
    assert set(names) <= {one.name for check in CHECKS.values() for one in declared_outcomes(check)}
    assert silent == {"board.unusable"}  # which is the sentence of another, and says it itself


def _made(module: ModuleType) -> Iterator[tuple[str, set[str] | None]]:
    """Give each outcome that a module's code makes, with the facts that it gives; None where they are not in sight."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id == "outcome"):
            given = {word.arg for word in node.keywords}
            facts = None if None in given else {word for word in given if word}
            yield from ((name.id, facts) for name in ast.walk(node.func) if isinstance(name, ast.Name))


def test_every_outcome_is_made_and_has_the_facts_that_it_names() -> None:
    for module, name, one in declared():
        named = {name for _, name, _, _ in string.Formatter().parse(one.template + one.next) if name}
        given = [facts for maker, facts in _made(module) if maker == name]

        assert given, f"{one.name} is never found"
        assert [facts for facts in given if facts is not None and not named <= facts] == []


# --- whatever a check meets ---


def fails(machine: Here) -> list[Message]:
    raise OSError("the disk is gone")


def test_a_check_that_fails_or_hangs_is_told_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def hangs(machine: Here) -> list[Message]:
        ended.wait(PATIENCE)
        return []

    (failed,) = run_check(fails, Here())
    monkeypatch.setattr(table, "LONGEST", 0.2)
    (hung,) = run_check(hangs, Here())
    monkeypatch.setattr(table, "LONGEST", PATIENCE)
    (after,) = run_check(fails, Here())
    ended.set()

    assert (failed.name, failed.facts["why"]) == (table.BROKEN.name, "OSError: the disk is gone")
    assert (hung.name, hung.facts["why"]) == (table.BROKEN.name, "it took more than 0.2 s")
    assert after.name == table.BROKEN.name  # it was done, though the one before still hangs
    until(lambda: all(thread.name != "tfgpu_magic-bounded" for thread in threading.enumerate()))


# --- what leaves the machine ---


def test_a_fact_that_is_a_sentence_or_a_line_stays_one_without_a_home() -> None:
    found = outcome("wrong", Severity.FAULT, "{why} Try {line}.")
    told = found(why=msg("{path} is wrong.", path="/home/maria/file"), line=Line("limit 2GiB"))

    assert REPORT.found(doctor.hide_homes(told, ["/home/maria"])) == "~/file is wrong. Try %tf_gpu limit 2GiB."


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
    assert json.loads(done.stdout)["host"] == platform.node()
    assert "s3cret" not in done.stdout
    assert "maria" not in done.stdout
    assert report.facts("board.directory")["directory"] == "~/board"
    assert report.facts("policy.broken")["file"] == "~/.ipython/profile_default/ipython_config.py"


def test_in_a_terminal_it_has_colours_and_elsewhere_none(absent: Machine) -> None:
    absent.remove_driver()  # TensorFlow is left alone then
    with terminal_of(absent, *TFGPU, "doctor") as terminal:
        status = terminal.process.wait(PATIENCE)
        until(lambda: "\x1b[1;31mfault  \x1b[0m" in terminal.said)
    piped = looking.doctor(absent, env={"TERM": "xterm"})

    assert (status, piped.returncode) == (1, 1)
    assert "\x1b" not in piped.stdout
    assert " fault    Driver" in piped.stdout
