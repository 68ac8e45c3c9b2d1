"""A notebook's kernel on a simulated machine, whose cells are run and all their messages kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psutil

from tests import jupyter
from tests.jupyter import Server, serving
from tests.processes import QUIET
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

LIGHT = (
    "from tfgpu_magic.isolate.process.forkserver_client import FORK_SERVER; "
    "FORK_SERVER.preload = ('tfgpu_magic.isolate.process.shell',)"
)
"""What a kernel runs whose cells use no TensorFlow: they need not wait for its import."""

HANG = """
import ctypes
_lock, _library = ctypes.create_string_buffer(64), ctypes.PyDLL(None)
for _ in range(2): _library.pthread_mutex_lock(_lock)
"""
"""A cell that never ends: it waits with the GIL held, and out of every signal's reach."""


def waits_for(mark: Path) -> str:
    """Return lines that wait until a file is there, and fail where it does not come."""
    return (
        f"import pathlib, time\nfor _ in range({int(6000 * SLACK)}):\n"
        f"    if pathlib.Path({str(mark)!r}).exists(): break\n"
        "    time.sleep(0.01)\n"
        "else: raise TimeoutError\n"
    )


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a cell: its messages, as kind and content."""

    status: str
    messages: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def stream(self, name: str = "stdout") -> str:
        return "".join(
            content["text"] for kind, content in self.messages if kind == "stream" and content["name"] == name
        )

    def shown(self, kind: str = "display_data") -> list[dict[str, Any]]:
        """Return the data of its displays."""
        return [content["data"] for what, content in self.messages if what == kind]

    @property
    def number(self) -> int:
        """Its number in the notebook."""
        return next(int(content["execution_count"]) for kind, content in self.messages if kind == "execute_input")

    @property
    def value(self) -> str:
        """Its value's text."""
        return "".join(data["text/plain"] for data in self.shown("execute_result"))

    @property
    def closing(self) -> str:
        """The line at the end of an isolated cell."""
        texts = [data["text/plain"] for data in self.shown()]
        return next((text for text in texts if text.startswith("Isolated: ")), "")

    @property
    def error(self) -> dict[str, Any]:
        """The error that stopped it."""
        return next((content for kind, content in self.messages if kind == "error"), {})

    @property
    def traceback(self) -> str:
        return "\n".join(self.error.get("traceback", []))

    @property
    def text(self) -> str:
        """All of its text."""
        shown = "".join(data.get("text/plain", "") for data in self.shown())
        return self.stream() + self.stream("stderr") + self.traceback + self.value + shown


def marks(text: str, mark: Path) -> Callable[[Ran], None]:
    """Return what makes a file once a cell has shown a text."""

    def heard(ran: Ran) -> None:
        if text in ran.text:
            mark.touch()

    return heard


class Notebook(jupyter.Notebook):
    """A kernel with the extension."""

    def __init__(self, server: Server, *lines: str) -> None:
        super().__init__(server)
        self.run("\n".join(["%load_ext tfgpu_magic", "%colors nocolor", *lines]))

    def ok(self, source: str) -> Ran:
        """Run a cell that must come to a good end."""
        ran = self.run(source)
        assert ran.status == "ok", f"{source}\n{ran.text}"
        return ran

    def run(self, source: str, heard: Callable[[Ran], object] = bool) -> Ran:  # type: ignore[override]  # not its text alone
        """Run a cell to its end; meanwhile `heard` is given what has come of it so far, after each message."""
        ran = Ran("", [])

        def hear(message: dict[str, Any]) -> None:
            ran.messages.append((message["msg_type"], message["content"]))
            heard(ran)

        reply = self.client.execute_interactive(source, output_hook=hear)
        return Ran(reply["content"]["status"], ran.messages)

    def isolated(self, body: str, line: str = "", heard: Callable[[Ran], object] = bool) -> Ran:
        """Run a cell in a process of its own."""
        return self.run(f"%%tf_gpu isolate {line}\n{body}", heard)

    def interrupt(self) -> None:
        self.server.open(f"api/kernels/{self.kernel}/interrupt", {}).close()

    @contextmanager
    def interrupted(self, when: Callable[[], object], then: Callable[[], object] = bool) -> Iterator[None]:
        """Interrupt what runs in the block when something is so, and again as long as that goes on."""
        ended = Event()

        def interrupt() -> None:
            until(when)
            self.interrupt()
            then()
            while not ended.wait(6 * SLACK):  # a line has said that this one kills
                self.interrupt()

        thread = Thread(target=interrupt)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def __enter__(self) -> Notebook:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        until(lambda: not psutil.pid_exists(self.pid))

    def family(self) -> list[psutil.Process]:
        """Return the kernel's descendants: the process that starts calls, and calls."""
        return psutil.Process(self.pid).children(recursive=True)

    def calls(self) -> list[psutil.Process]:
        """Return the processes of its calls, and what they started."""
        found = []
        for child in self.family():
            with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                found += [child] if child.ppid() != self.pid else []
        return found


@contextmanager
def notebook(machine: Machine, home: Path, *lines: str, options: Sequence[str] = ()) -> Iterator[Notebook]:
    temporary = home / "tmp"
    temporary.mkdir()
    whole = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}  # with pandas and matplotlib
    variables = {**QUIET, **whole, "TMPDIR": str(temporary)}
    with serving(machine, home, environment=variables, options=options) as server:
        one = Notebook(server, *lines)
        try:
            yield one
        finally:
            one.client.stop_channels()
