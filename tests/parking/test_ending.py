"""A process that was parked ends suspended, however its end comes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slack import SLACK

CODE = """
import atexit, os, signal, sys, threading
from tfgpu_magic.parking.inside.ending import Ending
say = lambda text: print(text, flush=True)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup(1) ignores
where = {where!r}

def suspend():
    global where
    say("suspends")
    where = "away"

atexit.register(say, "registered before")
Ending(lambda: where == "away", lambda: where == "restored", suspend, lambda: say("saves")).arrange(last_act=True)
atexit.register(say, "registered after")
{end}
"""
ENDS = {
    "by itself": "",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "its terminal is closed": "os.kill(os.getpid(), signal.SIGHUP)",
    "its server is lost": "thread = threading.Thread(target=os._exit, args=[1]); thread.start(); thread.join()",
}
FUNCTIONS = ["registered after", "registered before"]


def ended(where: str, end: str, suspends: str = 'say("suspends")') -> tuple[list[str], int, str]:
    """Run a program that ends; return the lines that it has printed, its exit status, and its errors."""
    code = CODE.format(where=where, end=end).replace('say("suspends")', suspends)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60 * SLACK)
    return done.stdout.splitlines(), done.returncode, done.stderr


@pytest.mark.parametrize(
    ("where", "end", "said", "status"),
    [
        ("away", "by itself", ["saves"], 0),
        ("away", "SIGTERM", ["saves"], 128 + signal.SIGTERM),
        ("away", "its terminal is closed", ["saves"], 128 + signal.SIGHUP),
        ("away", "its server is lost", [], 1),
        ("restored", "by itself", [*FUNCTIONS, "saves", "suspends"], 0),
        ("restored", "SIGTERM", [*FUNCTIONS, "saves", "suspends"], 128 + signal.SIGTERM),
        ("restored", "its terminal is closed", [*FUNCTIONS, "saves", "suspends"], 128 + signal.SIGHUP),
        ("restored", "its server is lost", ["suspends"], 1),
        ("there", "by itself", FUNCTIONS, 0),
        ("there", "its server is lost", [], 1),
    ],
)
def test_what_is_away_ends_at_once_and_what_was_restored_is_suspended_last(
    where: str, end: str, said: list[str], status: int
) -> None:
    assert ended(where, ENDS[end]) == (said, status, "")


REPORTS = """
from pathlib import Path
from tfgpu_magic.monitor.board.report_files import PREFIX
from tfgpu_magic.notebook.reporter import Reporter
from tfgpu_magic.parking import reported
from tfgpu_magic.parking.states import Phase
atexit.register(lambda: say([*Path(os.environ["TFGPU_MAGIC_DIR"]).rglob(f"{PREFIX}{os.getpid()}-*")] != []))
Reporter(name="train.py").start()
reported.post(reported.ParkedProcess(pid=os.getpid(), began=1, phase=Phase.BACK, since=1.0, returns=1))
"""


@pytest.mark.parametrize(("where", "reports"), [("restored", "True"), ("there", "False")])
def test_its_report_stays_until_its_last_act_and_goes_where_none_is_due(
    where: str, reports: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    said, _, errors = ended(where, REPORTS)

    assert reports in said, errors


@pytest.mark.parametrize(("end", "functions"), [("os._exit", []), ("sys.exit", FUNCTIONS)])
def test_what_it_forks_ends_as_ever(end: str, functions: list[str]) -> None:
    fork = f"os.fork() or {end}(3); say(os.waitstatus_to_exitcode(os.wait()[1]))"
    assert ended("restored", fork)[0] == [*functions, "3", *FUNCTIONS, "saves", "suspends"]


def test_a_signal_ends_what_it_forks_as_ever_however_early_it_comes() -> None:
    end = "(pid := os.fork()) or signal.pause(); os.kill(pid, 15); say(os.waitstatus_to_exitcode(os.wait()[1]))"
    assert ended("restored", end)[0] == [str(-signal.SIGTERM), *FUNCTIONS, "saves", "suspends"]


def test_an_interrupt_of_its_last_act_keeps_nothing_from_ending() -> None:
    assert ended("restored", "os._exit(3)", "raise KeyboardInterrupt") == ([], 3, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_no_signal_stops_its_last_act(number: int) -> None:
    last = f'os.kill(os.getpid(), {number}); say("suspends")'
    assert ended("restored", "os._exit(3)", last) == (["suspends"], 3, "")


INTERRUPTED = """
mask = signal.pthread_sigmask
def interrupted(how, which):
    before = mask(how, which)
    if signal.SIGTERM in which:
        signal.pthread_sigmask = mask
        raise KeyboardInterrupt
    return before
signal.pthread_sigmask = interrupted
os.fork() or os._exit(0)
say(len(mask(signal.SIG_BLOCK, [])))
"""


def test_an_interrupt_of_a_fork_leaves_no_signal_blocked() -> None:
    assert ended("there", INTERRUPTED)[0] == ["0", *FUNCTIONS]


def test_a_fork_leaves_blocked_what_was_blocked_before() -> None:
    mask = "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})"
    fork = "os.fork() or os._exit(signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    end = f"{mask}; {fork}; say(os.waitstatus_to_exitcode(os.wait()[1])); say(len({mask}))"
    assert ended("restored", end)[0] == ["1", "1", *FUNCTIONS, "saves", "suspends"]
