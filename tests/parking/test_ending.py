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
    code = CODE.format(where=where, end=ENDS[end])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert (done.stdout.splitlines(), done.returncode, done.stderr) == (said, status, "")


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
    code = CODE.format(where=where, end=REPORTS)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60 * SLACK)

    assert reports in done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize(("end", "functions"), [("os._exit", []), ("sys.exit", FUNCTIONS)])
def test_what_it_forks_ends_as_ever(end: str, functions: list[str]) -> None:
    code = CODE.format(where="restored", end=f"os.fork() or {end}(3); say(os.waitstatus_to_exitcode(os.wait()[1]))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stdout.splitlines() == [*functions, "3", *FUNCTIONS, "saves", "suspends"]


def test_a_signal_ends_what_it_forks_as_ever_however_early_it_comes() -> None:
    end = "(pid := os.fork()) or signal.pause(); os.kill(pid, 15); say(os.waitstatus_to_exitcode(os.wait()[1]))"
    code = CODE.format(where="restored", end=end)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20 * SLACK)

    assert done.stdout.splitlines() == [str(-signal.SIGTERM), *FUNCTIONS, "saves", "suspends"]


def test_an_interrupt_of_its_last_act_keeps_nothing_from_ending() -> None:
    code = CODE.format(where="restored", end="os._exit(3)").replace('say("suspends")', "raise KeyboardInterrupt")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20 * SLACK)

    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_no_signal_stops_its_last_act(number: int) -> None:
    last = f'os.kill(os.getpid(), {number}); say("suspends")'
    code = CODE.format(where="restored", end="os._exit(3)").replace('say("suspends")', last)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20 * SLACK)

    assert (done.returncode, done.stdout, done.stderr) == (3, "suspends\n", "")


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
    code = CODE.format(where="there", end=INTERRUPTED)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20 * SLACK)

    assert done.stdout.splitlines() == ["0", *FUNCTIONS]


def test_a_fork_leaves_blocked_what_was_blocked_before() -> None:
    mask = "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})"
    fork = "os.fork() or os._exit(signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    end = f"{mask}; {fork}; say(os.waitstatus_to_exitcode(os.wait()[1])); say(len({mask}))"
    code = CODE.format(where="restored", end=end)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20 * SLACK)

    assert done.stdout.splitlines() == ["1", "1", *FUNCTIONS, "saves", "suspends"]
