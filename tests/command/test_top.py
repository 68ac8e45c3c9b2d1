"""`tfgpu top` in a real terminal: it follows its size, says what is wrong, and leaves the terminal as it was."""

from __future__ import annotations

import os
import pty
import signal
from contextlib import AbstractContextManager

import pytest

from tests.command.shell import SIZED, TFGPU, Terminal, terminal_of
from tests.machines import machine_of
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

machine = machine_of("2x8GiB", scope="function")

IN, OUT, CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"
"""What a terminal is told: to show another screen, to show its own again, and to show its cursor."""


def top(machine: Machine, *command: str) -> AbstractContextManager[Terminal]:
    return terminal_of(machine, *(command or (*TFGPU, "top")))


def test_it_is_drawn_and_follows_the_machine_and_the_terminals_size(machine: Machine) -> None:
    with top(machine) as terminal:
        until(lambda: "live · 1 s" in terminal.said and "No process holds GPU memory." in terminal.said)
        machine.add_neighbour("3GiB@1")
        until(lambda: "neighbour" in terminal.said and "3.0 / 8 GiB" in terminal.said)
        narrow = len(terminal.said)
        terminal.resize(200, 50)
        os.kill(terminal.process.pid, signal.SIGWINCH)  # which only the terminal of a session's leader sends
        until(lambda: "yours" in terminal.said[narrow:])  # the legend of a wide one


@pytest.mark.parametrize(("end", "status"), [("q", 0), (signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_it_ends_and_the_terminal_is_as_it_was(machine: Machine, end: str | signal.Signals, status: int) -> None:
    with top(machine) as terminal:
        until(lambda: "live" in terminal.said)
        changed = terminal.modes() != terminal.before
        if isinstance(end, str):
            terminal.press(end)
        else:
            terminal.process.send_signal(end)
        assert terminal.process.wait(30) == status
        until(lambda: OUT in terminal.said and terminal.said.rfind(CURSOR) > terminal.said.rindex("live"))

        assert changed
        assert terminal.modes() == terminal.before
        assert terminal.said.count(IN) == terminal.said.count(OUT) == 1


def test_it_ends_with_a_terminal_that_goes_without_a_signal(machine: Machine) -> None:
    ours, theirs = pty.openpty()  # of no session: it sends no SIGHUP
    process = machine.popen([*TFGPU, "top"], stdin=theirs, stdout=theirs, stderr=theirs, env=SIZED)
    os.close(theirs)
    said = b""
    while b"live" not in said:
        said += os.read(ours, 65536)
    os.close(ours)

    try:
        assert process.wait(30 * SLACK) != 0
    finally:
        process.kill()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_it_is_not_lost_among_others(machine: Machine, end: signal.Signals) -> None:
    with top(machine) as terminal:
        until(lambda: "live" in terminal.said)
        terminal.process.send_signal(signal.SIGSTOP)
        until(lambda: os.waitpid(terminal.process.pid, os.WUNTRACED | os.WNOHANG)[0])
        for number in (signal.SIGWINCH, end, signal.SIGCONT):  # it finds them all at once
            terminal.process.send_signal(number)

        assert terminal.process.wait(30 * SLACK) == 128 + end


def test_an_encoding_without_its_characters_leaves_the_terminal_as_it_was(machine: Machine) -> None:
    machine.add_neighbour("3GiB@1")
    with top(machine, "env", "PYTHONIOENCODING=latin-1", *TFGPU, "top") as terminal:
        until(lambda: "neighbour" in terminal.said)
        terminal.press("q")

        assert terminal.process.wait(30 * SLACK) == 0
        until(lambda: terminal.said.count(IN) == terminal.said.count(OUT) == 1)


def test_a_terminal_that_cannot_be_drawn_on_gets_one_look(machine: Machine) -> None:
    with top(machine, "env", "TERM=dumb", *TFGPU, "top") as terminal:
        assert terminal.process.wait(60 * SLACK) == 0
        until(lambda: "Simulated GPU 8GiB" in terminal.said)
        assert IN not in terminal.said


def test_without_an_input_it_is_drawn_until_a_signal_ends_it(machine: Machine) -> None:
    with top(machine, "sh", "-c", f"exec {' '.join(TFGPU)} top <&-") as terminal:
        until(lambda: "live" in terminal.said)
        terminal.process.send_signal(signal.SIGTERM)

        assert terminal.process.wait(30 * SLACK) == 143


def test_without_an_output_it_ends(machine: Machine) -> None:
    with top(machine, "sh", "-c", f"exec {' '.join(TFGPU)} top >&-") as terminal:
        assert terminal.process.wait(60 * SLACK) == 0
        assert terminal.said == ""


def test_stopped_it_gives_the_terminal_back_and_takes_it_again(machine: Machine) -> None:
    with top(machine) as terminal:
        until(lambda: "live" in terminal.said)
        terminal.process.send_signal(signal.SIGTSTP)
        until(lambda: os.waitpid(terminal.process.pid, os.WUNTRACED | os.WNOHANG)[0])
        until(lambda: OUT in terminal.said)
        given_back = terminal.modes() == terminal.before
        stopped = len(terminal.said)
        terminal.process.send_signal(signal.SIGCONT)
        until(lambda: "live" in terminal.said[stopped:])
        terminal.press("q")

        assert given_back
        assert terminal.process.wait(30) == 0


def test_a_driver_that_hangs_is_told_and_keys_are_heard(machine: Machine) -> None:
    with top(machine) as terminal:
        until(lambda: "live" in terminal.said)
        machine.hang("nvmlDeviceGetMemoryInfo", 300)
        until(lambda: "stale since" in terminal.said, seconds=60)
        terminal.press("q")

        assert terminal.process.wait(30) == 0


def test_without_a_driver_it_says_so(machine: Machine) -> None:
    machine.remove_driver()
    with top(machine) as terminal:
        until(lambda: "To try it without a GPU" in terminal.said)
