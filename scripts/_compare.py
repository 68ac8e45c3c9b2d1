"""Asks tfgpu_magic and its peers the same questions on the same simulated machine: what scripts/compare does.

An answer is what a program shows and does there. What a peer does better is the one column that people wrote.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from unittest import mock

import psutil
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketError, websocket_connect

from scripts._scratch import scratch
from tests.command.shell import Terminal, terminal_of
from tests.jupyter import Server, serving
from tests.slack import SLACK
from tfgpu_magic import __version__
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.simgpu.demo.machine import KERNEL, as_notebook

PAGE = Path(__file__).parents[1] / "docs" / "comparison.md"
BEGIN, END = "<!-- scripts/compare writes from here -->\n", "\n<!-- to here -->"
NOTEBOOK, SECRET, HELD = "thesis.ipynb", "secret-plan.py", "9GiB"
SHOWN = re.compile(r"(?<![\d.])(9\.0+|9216|9[6-9]\d{8})(?!\d)")
"""How programs write what is used of the notebook's GPU: in GiB, in MiB, in bytes, also with what the driver keeps."""
OLD = re.compile(r"\b(stale|hangs|hung|outdated|frozen)\b|not answer|no answer|timed? ?out|unresponsive", re.IGNORECASE)
"""What a view may say of a driver that does not answer."""
LIMIT = re.compile(r"memory[- ]limit|limit (the )?(GPU )?memory|limit \d+GiB|set[- ]limit", re.IGNORECASE)
"""What a help may say of a limit for a program's GPU memory."""
VIEWS, WINDOW, PATIENCE = 20, 10.0, 30.0 * SLACK
"""How many look at once; the seconds in which calls are counted; and those for a first picture, or an answer."""


class View(Protocol):
    """An open view: what it has shown so far, and whether it still reacts to its user."""

    def text(self) -> str: ...

    def reacts(self) -> bool: ...


@dataclass(frozen=True)
class Peer:
    """A program that shows GPUs, by name and version.

    Attributes:
        name: the distribution's.
        version: the one that is asked; empty for ours, whose version is the tree's.
        view: the command that draws a live view in a terminal; or the path of a server that pages draw from.
        commands: those of its programs that have a help.
        better: what it does better than tfgpu_magic.
        needs: the Python that it asks for, where that is not any.
        hello: what a page says to its server first.
    """

    name: str
    version: str
    view: tuple[str, ...] | str
    commands: tuple[tuple[str, ...], ...]
    better: str
    needs: str = ""
    hello: str = ""


_COMMANDS = (("tfgpu", "--help"), ("tfgpu", "run", "--help"))
OURS = (
    Peer("tfgpu top", "", ("tfgpu", "top"), (("tfgpu", "--help"), ("tfgpu", "run", "--help")), ""),
    Peer(
        "tfgpu_magic's panel", "", "tfgpu-magic/stream", (("tfgpu", "run", "--help"),), "", hello='{"processes": true}'
    ),
)
PEERS = (
    Peer(
        "nvitop", "1.7.2", ("nvitop",), (("nvitop", "--help"), ("nvisel", "--help")),
        "a process's CPU, host memory, threads and tree, with charts; signals by key; its exporter speaks TLS; Windows",
    ),
    Peer(
        "gpustat", "1.1.1", ("gpustat", "-cupi", "1"), (("gpustat", "--help"),),
        "a line for each GPU, small and quick to read; fan, power and codecs; Windows",
    ),
    Peer(
        "jupyterlab-nvdashboard", "0.15.0", "nvdashboard/gpu_usage", (),
        "charts in JupyterLab of computing, PCIe, NVLink, CPU, disk and network; made by RAPIDS",
    ),
    Peer(
        "jupyter-resource-usage", "1.3.0", "api/metrics/v1", (),
        "host memory and CPU of server and kernel, with their limits; it is in many Hubs' images, and needs no GPU",
    ),
    Peer(
        "gpu-usage-audit", "1.8.0", ("gua", "top"), (("gua", "--help"), ("gua", "top", "--help")),
        "reports over days, with GPU-hours of each user; many hosts on one board", needs="3.12",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Answers:
    """What a program answered; None is a question that could not be asked.

    Attributes:
        first: seconds of processors that it had taken when it showed its first figures, with what it starts.
        memory: bytes that it and what it starts had in memory then.
        names: whether it names the notebook.
        private: whether it keeps another user's command line to itself.
        says: whether it says that the driver hangs.
        reacts: whether it reacts to its user then.
        calls: calls of NVML a second, with all views.
        limit: the command whose help names a limit of GPU memory.
    """

    first: float | None
    memory: int | None
    names: bool
    private: bool | None
    says: bool
    reacts: bool
    calls: float
    limit: str


class Terminals:
    """A view in a terminal."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def text(self) -> str:
        return re.sub(r"\x1b[\[(][0-9;?]*[A-Za-z]", "", self._terminal.said)

    def reacts(self) -> bool:
        """End it as its user does: by `q`, or by Ctrl-C."""
        process: subprocess.Popen[bytes] = self._terminal.process
        with contextlib.suppress(OSError):
            self._terminal.press("q")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3)
        return process.poll() is not None


class Page:
    """What a page gets from a server: by a WebSocket, or, if the server has none there, by asking again."""

    def __init__(self, server: Server, path: str, hello: str) -> None:
        self._server, self._path, self._hello = server, path, hello
        self._texts, self._ended = [""], threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._read()), daemon=True)
        self._thread.start()

    def text(self) -> str:
        return "\n".join(self._texts)

    def reacts(self) -> bool:
        """Ask the server for something else."""
        with contextlib.suppress(OSError):
            return bool(self._server.call("status"))
        return False

    def end(self) -> None:
        self._ended.set()
        self._thread.join(10)

    async def _read(self) -> None:
        headers = {"Authorization": f"token {self._server.token}"}
        try:
            asked = HTTPRequest(f"ws://{self._server.base}{self._path}", headers=headers, connect_timeout=10)
            connection = await websocket_connect(asked)
        except (HTTPClientError, WebSocketError, OSError):  # no WebSocket there
            while not self._ended.wait(1):
                with contextlib.suppress(OSError), self._server.open(self._path) as answer:
                    self._texts.append(answer.read().decode())
            return
        if self._hello:
            await connection.write_message(self._hello)
        while not self._ended.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                self._texts.append(str(await asyncio.wait_for(connection.read_message(), 1)))
        connection.close()


def _ours(folder: str) -> dict[int, psutil.Process]:
    """Return the processes that have a folder for their board, as all have that are started on the machine."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("TFGPU_MAGIC_DIR") == folder:
                found[process.pid] = process
    return found


def _cost(processes: Iterable[psutil.Process]) -> tuple[float, int]:
    """Return the seconds of processors that processes took so far, and the bytes that they have in memory."""
    seconds, size = 0.0, 0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            seconds += times.user + times.system
            size += process.memory_info().rss
    return seconds, size


def _soon(promise: Callable[[], object], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not promise():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@contextmanager
def views(
    peer: Peer, python: Path, machine: Machine, home: Path
) -> Iterator[Callable[[], AbstractContextManager[View]]]:
    """Have what opens a view of a program: a terminal each, or a page of one server."""
    if isinstance(peer.view, tuple):
        command = (str(python.with_name(peer.view[0])), *peer.view[1:])

        @contextmanager
        def terminal() -> Iterator[View]:
            with terminal_of(machine, *command) as made:
                made.resize(200, 60)
                yield Terminals(made)

        yield terminal
        return
    path = peer.view
    environment = {"JUPYTER_PREFER_ENV_PATH": "1", "PATH": os.environ["PATH"], "PYTHONPATH": ""}
    with serving(machine, home, python=str(python), environment=environment) as server:

        @contextmanager
        def page() -> Iterator[View]:
            made = Page(server, path, peer.hello)
            try:
                yield made
            finally:
                made.end()

        yield page


def ask(peer: Peer, python: Path, *, count: int = VIEWS, window: float = WINDOW) -> Answers:
    """Ask a program the questions, on a machine on which a notebook and another user hold memory.

    Args:
        peer: the program.
        python: the interpreter of the environment that has it.
        count: how many views are opened at once.
        window: the seconds in which calls are counted.
    """
    with scratch() as folder, Machine.create("2x16GiB") as machine, ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, TFGPU_MAGIC_DIR=f"{folder}/board"))
        with as_notebook(NOTEBOOK):
            machine.add_neighbour(f"{HELD}@0", name=KERNEL)
        if os.geteuid() == 0:
            machine.add_foreign("5GiB@1", name=f"python {SECRET}")
        before = _ours(f"{folder}/board")
        opened = stack.enter_context(views(peer, python, machine, Path(folder)))
        view = stack.enter_context(opened())
        drawn = _soon(lambda: SHOWN.search(view.text()), PATIENCE if peer.view != "api/metrics/v1" else 5)
        first, memory = _cost(one for pid, one in _ours(f"{folder}/board").items() if pid not in before)
        time.sleep(2)
        _soon(lambda: NOTEBOOK in view.text(), PATIENCE if drawn else 0)
        seen = view.text()
        more = [stack.enter_context(opened()) for _ in range(count - 1)]
        _soon(lambda: all(SHOWN.search(one.text()) for one in more), PATIENCE if drawn else 1)
        begun = sum(machine.calls().values())
        time.sleep(window)
        calls = (sum(machine.calls().values()) - begun) / window
        known = len(view.text())
        for function in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUtilizationRates"):
            machine.hang(function, 3600)
        says = _soon(lambda: OLD.search(view.text()[known:]), 15 if drawn else 3)
        reacts = view.reacts()
        machine.clear_faults()
    return Answers(
        first=first if drawn else None,
        memory=memory if drawn else None,
        names=NOTEBOOK in seen,
        private=SECRET not in seen if os.geteuid() == 0 else None,
        says=says,
        reacts=reacts,
        calls=calls,
        limit=_limit(peer, python),
    )


def _limit(peer: Peer, python: Path) -> str:
    """Return the command whose help names a limit of GPU memory; empty if there is none."""
    for command in peer.commands:
        program = [str(python.with_name(command[0])), *command[1:]]
        done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)
        if LIMIT.search(done.stdout):
            return " ".join(command[:-1])
    return ""


def install(peer: Peer, folder: Path) -> Path:
    """Make an environment with a program, and return its interpreter.

    Raises:
        subprocess.CalledProcessError: it cannot be installed here; its standard error says why.
    """
    made = folder / peer.name
    base = peer.needs or f"{sys.version_info.major}.{sys.version_info.minor}"
    run = {"check": True, "capture_output": True, "text": True}
    subprocess.run([*_UV, "venv", "--quiet", "--python", base, "--no-python-downloads", str(made)], **run)  # type: ignore[call-overload]
    python = made / "bin" / "python"
    wanted = [f"{peer.name}=={peer.version}", *(["jupyter_server"] if isinstance(peer.view, str) else [])]
    subprocess.run([*_UV, "pip", "install", "--quiet", "--python", str(python), *wanted], **run)  # type: ignore[call-overload]
    return python


_UV = (sys.executable, "-m", "uv")


def table(found: Sequence[tuple[Peer, Answers | str]], when: str) -> str:
    """Write the answers as a table, with the date; a text in place of answers says why a program was not asked."""
    asked = [(peer, answers) for peer, answers in found if isinstance(answers, Answers)]
    rows: dict[str, Callable[[Answers], str]] = {
        "names the notebook that holds the memory": lambda one: _yes(one.names),
        "keeps other users' command lines to itself": lambda one: _yes(one.private),
        "says so if the driver hangs": lambda one: _yes(one.says),
        "reacts to its user if the driver hangs": lambda one: _yes(one.reacts),
        f"calls of NVML a second for {VIEWS} views": lambda one: f"{one.calls:.0f}",
        "limits GPU memory before its first use": lambda one: f"`{one.limit}`" if one.limit else "no",
        "processor time until the first figures": lambda one: "-" if one.first is None else f"{one.first:.1f} s",
        "memory then": lambda one: "-" if one.memory is None else f"{one.memory / 2**20:.0f} MiB",
    }
    heads = [f"{peer.name} {peer.version}".strip() for peer, _ in asked]
    lines = [
        f"Asked on {when}, tfgpu_magic {__version__}, Python {sys.version.split()[0]}.\n",
        "| Question | " + " | ".join(heads) + " |",
        "|---" * (len(heads) + 1) + "|",
        *(f"| {what} | " + " | ".join(write(answers) for _, answers in asked) + " |" for what, write in rows.items()),
        *(f"\n{peer.name} {peer.version} was not asked: {why}" for peer, why in found if isinstance(why, str)),
        "\n| Program | What it does better |\n|---|---|",
        *(f"| {peer.name} | {peer.better} |" for peer, _ in found if peer.better),
    ]
    return "\n".join(lines)


def _yes(answer: bool | None) -> str:
    return {True: "yes", False: "no", None: "not asked"}[answer]


def main() -> None:
    """Install, ask, and write the page."""
    parser = argparse.ArgumentParser("scripts/compare", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="only these, which are printed and not written")
    names = parser.parse_args().names
    found: list[tuple[Peer, Answers | str]] = []
    with scratch() as folder:
        for peer in (*OURS, *PEERS):
            if names and peer.name not in names:
                continue
            answers: Answers | str
            try:
                python = Path(sys.executable) if peer in OURS else install(peer, Path(folder))
            except subprocess.CalledProcessError as error:
                answers = f"it could not be installed here ({error.stderr.strip().splitlines()[-1].strip()})."
            else:
                answers = ask(peer, python)
            print(peer.name, answers, flush=True)
            found.append((peer, answers))
    if not names:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n{table(found, time.strftime('%Y-%m-%d'))}\n{END}{after}")
        print(f"Written: {PAGE}")


if __name__ == "__main__":
    main()
