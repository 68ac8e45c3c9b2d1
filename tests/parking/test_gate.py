"""The gate holds what it can, names what it cannot, and leaves everything as it was: real loops, threads and timers."""

from __future__ import annotations

import _thread
import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from jupyter_core.utils import run_sync
from tornado.ioloop import IOLoop
from traitlets.config import Config

from tests.processes import run
from tests.waiting import until
from tfgpu_magic.ground.message import msg
from tfgpu_magic.isolate import user_code
from tfgpu_magic.isolate.cells.jobs import Job
from tfgpu_magic.isolate.executor import IsolatedExecutor
from tfgpu_magic.isolate.process import forkserver_client
from tfgpu_magic.isolate.process.forkserver_client import ForkServerProcess
from tfgpu_magic.isolate.run import Run
from tfgpu_magic.parking.kernel import ipython, running_code
from tfgpu_magic.parking.kernel.gate import Gate, StillParked


class Back:
    """What brings the state back: at once, in vain, or when it is let."""

    asked, refuses = 0, False
    gate: Gate | None = None

    def __call__(self) -> None:
        self.asked += 1
        if self.refuses:
            raise StillParked(msg("not now"))
        assert self.gate is not None
        self.gate.open()


async def later() -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("begin", "named"),
    [
        (lambda _: None, []),
        (lambda loop: loop.create_task(later()), ["task later"]),
        (lambda loop: loop.call_later(60, print), ["callback print"]),
        (lambda loop: loop.call_later(60, print).cancel(), []),
        (lambda loop: loop.call_soon(partial(print)), ["callback print"]),
        (lambda loop: loop.add_signal_handler(signal.SIGUSR2, print), ["handler of SIGUSR2"]),
        (lambda loop: loop.add_reader(os.eventfd(0), print), ["callback print"]),
    ],
)
def test_what_a_loop_has_waiting_for_the_user_is_named(begin: Callable[[Any], object], named: list[str]) -> None:
    async def show() -> list[str]:
        loop, own = asyncio.get_running_loop(), asyncio.current_task()
        kept = begin(loop)
        found = list(running_code.waiting_in(loop))
        assert own is not kept
        return found

    own = "task test_what_a_loop_has_waiting_for_the_user_is_named.<locals>.show"
    assert sorted(asyncio.run(show())) == sorted([own, *named])


def test_a_loop_whose_parts_are_not_known_here_makes_parking_refuse() -> None:
    loop: Any = asyncio.new_event_loop()
    gate = Gate(Back(), [lambda _: running_code.waiting_in(loop)])
    scheduled = loop.__dict__.pop("_scheduled")
    try:
        (said,) = gate.close()
    finally:
        gate.open()
        loop._scheduled = scheduled
        loop.close()

    assert said.startswith("a library of another version than is known here")


# --- threads ---


@pytest.fixture
def over() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def found() -> tuple[str, ...]:
    gate = Gate(Back(), [partial(running_code.block, None)])
    try:
        return gate.close()
    finally:
        gate.open()


def test_a_thread_that_a_library_has_started_is_found_where_it_runs_python() -> None:
    assert run(None, _nameless_beside) == {user_code.NAMELESS}


def _nameless_beside() -> set[str]:
    before = found()
    _thread.start_new_thread(threading.Event().wait, ())
    return set(until(found, lambda names: names != before)) - set(before)


def test_the_main_thread_is_named_where_another_one_parks_and_it_does_the_users_work() -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(found)

        assert "MainThread" in asked.result()


def test_a_pool_with_nothing_to_do_is_harmless_and_one_at_work_is_not(over: threading.Event) -> None:
    before = found()
    with ThreadPoolExecutor(1, thread_name_prefix="pool") as pool:
        pool.submit(int).result()
        until(lambda: set(found()) <= set(before))
        pool.submit(over.wait)  # Python's own code, which may be called by anybody
        try:
            until(lambda: set(found()) - set(before) == {"pool_0"})
        finally:
            over.set()


def test_a_thread_of_the_users_that_runs_a_loop_may_run_anything() -> None:
    loop = IOLoop(make_current=False)
    thread = threading.Thread(target=loop.start, name="their loop")
    thread.start()
    try:
        until(lambda: "their loop" in found())
    finally:
        loop.add_callback(loop.stop)
        thread.join()
        loop.close()


def test_a_thread_that_has_moved_memory_and_is_about_to_end_is_harmless(over: threading.Event) -> None:
    """It has nothing of ours on its stack any more."""
    thread = threading.Thread(target=over.wait, name="tfgpu_magic-park")
    thread.start()
    try:
        assert "tfgpu_magic-park" not in found()
    finally:
        over.set()
        thread.join()


def test_a_thread_on_which_jupyter_waits_is_harmless() -> None:
    """A notebook that has asked another one has it from then on."""
    before = found()
    waits, loop = run_sync(asyncio.sleep), asyncio.new_event_loop()

    async def ask() -> None:
        waits(0)

    loop.run_until_complete(ask())
    loop.close()
    until(lambda: set(found()) <= set(before))


@pytest.mark.parametrize(
    ("change", "number", "to", "back", "named"),
    [
        (signal.setitimer, signal.ITIMER_VIRTUAL, 1000, 0, "signal.ITIMER_VIRTUAL"),
        (signal.signal, signal.SIGUSR1, lambda *_: None, signal.SIG_DFL, "handler of SIGUSR1"),
        (signal.signal, signal.SIGRTMIN, lambda *_: None, signal.SIG_DFL, "handler of SIGRTMIN"),
    ],
)
def test_a_timer_by_signals_and_a_handler_are_named(change: Any, number: int, to: Any, back: Any, named: str) -> None:
    before = found()
    change(number, to)
    try:
        until(lambda: set(found()) - set(before) == {named})
    finally:
        change(number, back)


def test_a_cell_that_another_thread_is_about_to_run_is_seen(over: threading.Event) -> None:
    made: Any = InteractiveShell
    shell = made(config=Config(HistoryManager={"enabled": False}))
    shell.transform_cell = lambda raw_cell: over.wait() and raw_cell
    assert not running_code.cell_runs(shell)
    thread = threading.Thread(target=lambda: shell.run_cell("pass"))
    thread.start()
    until(lambda: running_code.cell_runs(shell))
    over.set()
    thread.join()
    assert not running_code.cell_runs(shell)


# --- the end of a job or a call ---


def job(seen: list[str]) -> None:
    """Begin a job that ends at once, and note when its callback runs."""
    go_on = threading.Event()
    cell: Any = SimpleNamespace(title="job", running=None, run=go_on.wait, bring_names=lambda: None)
    Job(cell).add_done_callback(lambda _: seen.append("called"))
    go_on.set()


def call(seen: list[str]) -> None:
    """Begin a call that ends at once, and note when its value is made and its callback runs."""
    IsolatedExecutor(gpus=0).submit(print).add_done_callback(lambda _: seen.append("called"))


@pytest.mark.parametrize(("begin", "expected"), [(job, ["called"]), (call, ["made", "called"])])
def test_what_runs_at_the_end_of_a_job_or_a_call_waits_for_the_state(
    begin: Any, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, back = list[str](), Back()
    back.refuses = True
    monkeypatch.setattr(Run, "run", lambda *_, **__: SimpleNamespace(value=lambda: seen.append("made")))
    gate = back.gate = Gate(back, [partial(running_code.block, None)])
    gate.close()
    begin(seen)
    until(lambda: back.asked)
    waits = seen.copy()
    back.refuses = False
    until(lambda: seen == expected)

    assert waits == []
    assert not gate.closed


def test_a_thread_of_ours_that_runs_the_users_is_named(over: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library in C has no frame by which it could be known: one that makes a value again, say."""
    monkeypatch.setattr(Run, "run", lambda *_, **__: SimpleNamespace(value=over.wait))
    before = found()
    call([])

    until(lambda: set(found()) - set(before) == {"tfgpu_magic-call"})
    over.set()
    until(lambda: set(found()) <= set(before))


def test_a_thread_that_waits_for_the_end_of_a_fork_server_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forkserver_client, "_END_TIMEOUT", 0.0)
    server = ForkServerProcess(())
    os.kill(server.pid, signal.SIGSTOP)
    try:
        server.retire()
        waits = next(one for one in threading.enumerate() if one.name == "tfgpu_magic-forkserver")
        until(lambda: waits.name not in found())
        assert waits.is_alive()
    finally:
        os.kill(server.pid, signal.SIGKILL)
    waits.join()


# --- what pages ask of widgets ---


def test_each_page_that_asks_for_a_widget_of_the_users_own_class_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    comm = SimpleNamespace(target_name="jupyter.widget", comm_id="w")
    monkeypatch.setitem(sys.modules, "ipywidgets.widgets.widget", SimpleNamespace(_instances={"w": Back()}))
    answered: list[tuple[str, int]] = []
    kernel: Any = SimpleNamespace(
        shell_handlers={"comm_msg": lambda *message: answered.append(message[2]["header"]["asks"])},
        control_handlers={}, comm_manager=SimpleNamespace(comms={"w": comm}),
        get_parent=lambda _: {}, set_parent=lambda *_: None,
    )  # fmt: skip
    gate = Gate(Back(), [partial(ipython.block_messages, kernel)])

    async def ask() -> None:
        gate.close()
        for asks in (("one", 1), ("another", 1), ("one", 2)):
            content = {"comm_id": "w", "data": {"method": "request_state"}}
            message = {"header": {"session": asks[0], "asks": asks}, "content": content}
            await kernel.shell_handlers["comm_msg"](None, [], message)
        gate.open()
        await asyncio.sleep(0)
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})

    asyncio.run(ask())

    assert sorted(answered) == [("another", 1), ("one", 2)]
