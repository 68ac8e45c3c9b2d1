"""A process that was parked ends suspended, however its end comes; under the open kernel module nothing hangs then.

First the end of plain programs, then that of real kernels, whether they are parked or back.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.jupyter import PATIENT, Notebook, serving
from tests.parking.conftest import phase
from tests.parking.notebooks import AT_EXIT, ENDS, Site, home, is_parked, park, runs_again, seen
from tests.sizes import GIB
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.simgpu import Machine

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
LINES = {
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
def test_one_away_ends_at_once_and_one_back_suspends_last(where: str, end: str, said: list[str], status: int) -> None:
    assert ended(where, LINES[end]) == (said, status, "")


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


# --- real kernels, under the open kernel module ---

Opened = Callable[[], contextlib.AbstractContextManager[Site]]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """Start servers on a machine with the open kernel module, where the administrator allows parking."""
    with seen("1x8GiB", tmp_path_factory.mktemp("board")) as machine:
        machine.set_driver("595.71.05", open_module=True)

        @contextlib.contextmanager
        def start() -> Iterator[Site]:
            place = home(tmp_path_factory.mktemp("home"), parking_on_open_module=True)
            with serving(machine, place, options=[PATIENT]) as server:
                yield Site(machine, server)

        yield start


@pytest.fixture(scope="module")
def site(opened: Opened) -> Iterator[Site]:
    with opened() as site:
        yield site


def stop_as_a_hub(site: Site, _: Notebook) -> None:
    """Ask the server to end, and kill it after ten seconds."""
    site.server.process.terminate()
    try:
        site.server.process.wait(10)
    except subprocess.TimeoutExpired:
        site.server.process.kill()


WAYS = {**ENDS, "as a Hub": stop_as_a_hub}


def ended_well(machine: Machine, notebook: Notebook) -> None:
    """Wait for a notebook's end, and see whether the machine's driver still answers."""
    until(lambda: machine.hung() or not Path(f"/proc/{notebook.pid}").exists())
    assert not machine.hung()
    assert machine.held(pid=notebook.pid) == 0


@pytest.mark.parametrize("end", ["restart", "shutdown", "SIGTERM", "exit"])
def test_one_that_is_back_is_parked_again_after_all_else_at_its_end(site: Site, end: str, tmp_path: Path) -> None:
    said = tmp_path / "said"
    with site.holding("back.ipynb", GIB) as notebook:
        notebook.run(AT_EXIT.format(str(said)))
        park(notebook)
        assert notebook.run("print(intact())") == "True\n"
        WAYS[end](site, notebook)
        ended_well(site.machine, notebook)

        assert said.read_text() == "True"  # with the GPU
        assert end != "restart" or runs_again(site, notebook)


@pytest.mark.parametrize("end", ["restart", "shutdown", "SIGTERM", "SIGKILL"])
def test_one_that_is_parked_ends_at_once(site: Site, end: str, tmp_path: Path) -> None:
    said = tmp_path / "said"
    with site.holding("parked.ipynb", GIB) as notebook:
        notebook.run(AT_EXIT.format(str(said)))
        park(notebook)
        notebook.run("pass")
        park(notebook)
        WAYS[end](site, notebook)
        ended_well(site.machine, notebook)

        assert not said.exists()  # there is no GPU for it


def test_one_that_comes_back_when_it_ends_is_parked_again(site: Site) -> None:
    with site.holding("comes.ipynb", GIB) as notebook:
        park(notebook)
        site.machine.set_checkpoints(back=0.5 / (1 + SLACK))
        notebook.client.execute("pass")
        until(lambda: phase(notebook.pid) is Phase.RESTORING)
        WAYS["SIGTERM"](site, notebook)
        ended_well(site.machine, notebook)
        site.machine.set_checkpoints(back=0.0)


@pytest.mark.parametrize("parked", [True, False], ids=["parked", "back"])
@pytest.mark.parametrize("end", ["server lost", "as a Hub"])
def test_a_server_that_is_gone_takes_its_kernels_with_it(opened: Opened, end: str, parked: bool) -> None:
    with opened() as site:
        notebook = Notebook(site.server, "lost.ipynb")
        notebook.run(f"from tests.simgpu.checkpoint_on_machine import hold, intact; at = hold({GIB})")
        park(notebook)
        if not parked:
            assert notebook.run("print(intact())") == "True\n"
        assert is_parked(notebook) == parked
        WAYS[end](site, notebook)
        ended_well(site.machine, notebook)
        notebook.client.stop_channels()
