"""The feed by itself: each client is sent all that it may know, whatever happens to another one.

Looks may hang, we may have faults, and kernels and managers may not be there to be asked. Clients that do not read, and
that nobody looks when all have left, are in `test_end.py`, with a real server.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tornado.websocket import WebSocketClosedError

from tests.slack import SLACK
from tfgpu_magic.ground.rows import Notebook, Table
from tfgpu_magic.server import feed as feeding
from tfgpu_magic.server.feed import Client, Feed, States
from tfgpu_magic.server.job_thread import JobThread
from tfgpu_magic.tell import page_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

LOG = logging.getLogger("test")


class Counting:
    """A board reader that sees something new each time, and counts its looks; they hang while `go` is clear."""

    def __init__(self, _: logging.Logger, **__: float) -> None:
        self.count = 0
        self.settled = True
        self.go = threading.Event()
        self.go.set()
        self.asked: list[Mapping[int, Notebook]] = []
        self.processes: list[bool] = []

    def read_state(self, notebooks: Mapping[int, Notebook], *, processes: bool) -> page_json.WireState:
        self.go.wait()
        self.count += 1
        self.processes.append(processes)
        self.asked.append(notebooks)
        return {"time": float(self.count), "gpus": {}, "rows": {}}

    def full(self, sequence: int, state: page_json.WireState, every: float) -> bytes:
        self.go.wait()
        return json.dumps({"type": "full", "sequence": sequence, "state": state, "every": every}).encode()

    def close(self) -> None:
        self.count = -1


class Page:
    """A client of the feed, and what it was sent; one that `takes` nothing leaves each message on its way."""

    def __init__(self, feed: Feed, *, takes: bool = True) -> None:
        self.texts: list[bytes] = []
        self.takes = takes
        self.closed = False
        self.taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.client = Client(self.write, self.close)
        feed.join(self.client)

    def write(self, text: bytes) -> asyncio.Future[None]:
        if self.closed:
            raise WebSocketClosedError
        self.texts.append(text)
        self.taken = asyncio.get_running_loop().create_future()
        if self.takes:
            self.taken.set_result(None)
        return self.taken

    def close(self) -> None:
        self.closed = True

    @property
    def kinds(self) -> list[str]:
        return [json.loads(text)["type"] for text in self.texts]

    async def until(self, promise: Callable[[], object]) -> None:
        """Wait until it is so, as `tests.waiting` does, and let the feed go on meanwhile."""

        async def ask() -> None:
            while not promise():
                await asyncio.sleep(0.01)

        await asyncio.wait_for(ask(), 5 * SLACK)


async def nobody() -> dict[int, Notebook]:
    """Return no notebooks, as managers do that have no kernels."""
    return {}


def with_feed(
    test: Callable[[Feed], Awaitable[None]], kernels: Callable[[], Awaitable[Any]] = nobody
) -> Callable[[], None]:
    """Make a function that runs a test with a feed that asks `kernels` for notebooks, and ends the feed after it."""

    async def run() -> None:
        feed = Feed(kernels, LOG, every=0.01)
        await test(feed)
        feed.close()
        await asyncio.sleep(0.05)

    return lambda: asyncio.run(run())


@pytest.fixture(autouse=True)
def quick_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a feed count in hundredths of seconds, and look at what the test makes up."""
    monkeypatch.setattr(feeding, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(feeding, "LOOK_TIMEOUT", 0.2 * SLACK)
    monkeypatch.setattr(feeding, "BoardReader", Counting)


@with_feed
async def test_what_is_sent_to_many_is_written_once(feed: Feed) -> None:
    pages = [Page(feed) for _ in range(40)]
    await pages[0].until(lambda: len(pages[-1].texts) > 3)

    assert len({id(page.texts[2]) for page in pages}) == 1
    assert len({id(page.texts[0]) for page in pages}) == 1


@with_feed
async def test_a_client_that_is_gone_harms_nobody(feed: Feed) -> None:
    gone, page = Page(feed), Page(feed)
    gone.closed = True
    lost = Page(feed, takes=False)
    await page.until(lambda: lost.texts)
    lost.taken.set_exception(WebSocketClosedError())
    feed.leave(lost.client)
    feed.leave(lost.client)
    await page.until(lambda: len(page.texts) > 5)


@with_feed
async def test_a_client_gets_one_message_until_it_has_taken_it_and_then_what_is_new(feed: Feed) -> None:
    slow, page = Page(feed, takes=False), Page(feed)
    await page.until(lambda: len(page.texts) > 5)

    assert slow.kinds == ["full"]
    slow.taken.set_result(None)
    await page.until(lambda: len(slow.texts) > 1)
    assert slow.kinds == ["full", "full"]


def test_after_a_message_that_nothing_is_new_comes_the_change() -> None:
    states = States()
    states.add({"time": 1.0, "gpus": {}, "rows": {}})
    quiet = states.tick(1)
    states.add({"time": 2.0, "gpus": {}, "rows": {}})

    assert [json.loads(text or "")["sequence"] for text in (quiet, states.tick(1))] == [1, 2]


class Still(Counting):
    """A board reader that sees something new at its first look alone."""

    def read_state(  # type: ignore[override]  # as a real one
        self, notebooks: Mapping[int, Notebook], *, processes: bool
    ) -> page_json.WireState | None:
        state = super().read_state(notebooks, processes=processes)
        return state if self.count == 1 else None


def test_what_a_look_that_hung_finds_unchanged_is_shown_as_new_again_with_its_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeding, "BoardReader", Still)

    @with_feed
    async def run(feed: Feed) -> None:
        reader: Any = feed._board_reader
        page = Page(feed)
        await page.until(lambda: page.texts)
        reader.go.clear()
        await page.until(lambda: "stale" in feed._states.newest)
        monkeypatch.setattr(feeding, "LOOK_TIMEOUT", 3600)
        reader.go.set()
        await page.until(lambda: "stale" not in feed._states.newest)

        reader.go.clear()
        late = asyncio.ensure_future(feed.full())
        for _ in range(10):  # turns of the loop: far more than it needs to go on without the reader
            await asyncio.sleep(0)
        reader.go.set()
        assert await late == reader.full(feed._states.sequence, feed._states.newest, 0.01)

    run()


def test_who_comes_after_the_end_is_sent_away() -> None:
    async def run() -> Page:
        feed = Feed(nobody, LOG)
        first = Page(feed)
        await first.until(lambda: first.texts)
        feed.close()
        assert first.closed
        return Page(feed)

    late = asyncio.run(run())

    assert (late.closed, late.texts) == (True, [])


def test_the_same_state_is_not_new_and_who_has_neither_of_the_last_two_needs_all() -> None:
    states = States()
    for number in (1, 1, 2, 3):
        states.add(page_json.state(Table(time=number)))

    assert states.sequence == 3
    assert [states.tick(base) is None for base in (0, 1, 2, 3)] == [True, True, False, False]
    assert json.loads(states.tick(3) or "")["patch"] == {"time": 3}


@with_feed
async def test_lists_of_processes_are_wanted_as_long_as_one_client_looks_at_them(feed: Feed) -> None:
    bar, panel = Page(feed), Page(feed)
    board_reader: Any = feed._board_reader

    async def wanted(bar_looks: bool, panel_looks: bool) -> bool:
        feed.show_processes(bar.client, processes=bar_looks)
        feed.show_processes(panel.client, processes=panel_looks)
        count = len(board_reader.processes)
        await bar.until(lambda: len(board_reader.processes) > count + 1)
        return bool(board_reader.processes[-1])

    assert [await wanted(*both) for both in ((True, True), (False, True), (False, False))] == [True, True, False]
    feed.leave(panel.client)
    assert await wanted(True, False)


def test_who_begins_to_look_at_processes_waits_for_no_look_that_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "LOOK_EVERY", 3600)

    @with_feed
    async def run(feed: Feed) -> None:
        board_reader: Any = feed._board_reader
        page = Page(feed)
        feed.show_processes(page.client, processes=False)
        await page.until(lambda: page.texts)
        feed.show_processes(page.client, processes=True)
        await page.until(lambda: board_reader.processes[-1])

    run()


# --- in trouble ---


@with_feed
async def test_a_look_that_hangs_is_stale_holds_up_nothing_and_heals(feed: Feed) -> None:
    page, begun = Page(feed), time.time()
    await page.until(lambda: len(page.texts) > 2)
    board_reader: Any = feed._board_reader
    board_reader.go.clear()
    await page.until(lambda: json.loads(page.texts[-1])["patch"].get("stale"))
    stale = json.loads(page.texts[-1])["patch"]["stale"]
    sent = len(page.texts)
    late = Page(feed)
    answer = json.loads(await feed.full())
    await page.until(lambda: late.texts)
    await page.until(lambda: len(page.texts) > sent)  # it is told that we live

    assert begun < stale < time.time()
    assert "stale" in answer["state"]
    assert "stale" in json.loads(late.texts[0])["state"]
    board_reader.go.set()
    await page.until(lambda: b'"stale":null' in page.texts[-1] or b'"stale"' not in page.texts[-1])


def test_kernels_that_cannot_be_asked_are_said_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    answers = [{7: Notebook(path="train.ipynb")}]

    async def answer_once() -> dict[int, Notebook]:
        if answers:
            return answers.pop()
        raise OSError("no database")

    async def test(feed: Feed) -> None:
        page = Page(feed)
        await page.until(lambda: len(page.texts) > 5)
        board_reader: Any = feed._board_reader

        assert board_reader.asked[0]
        assert board_reader.asked[-1] == {}  # what was known is not taken for what is

    with_feed(test, answer_once)()

    assert caplog.text.count("kernels are shown without their notebooks") == 1


def test_a_fault_of_ours_ends_the_streams_and_the_next_one_begins_anew(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(feed: Feed) -> None:
        page = Page(feed)
        await page.until(lambda: page.texts)
        with monkeypatch.context() as patching:
            patching.setattr(States, "tick", lambda *_: 1 / 0)
            await page.until(lambda: page.closed)
        again = Page(feed)
        await page.until(lambda: len(again.texts) > 2)

    with_feed(test)()

    assert "the streams end" in caplog.text


def test_two_who_come_at_once_wait_for_the_same_answer_of_the_managers(caplog: pytest.LogCaptureFixture) -> None:
    train = {7: Notebook(path="train.ipynb")}

    async def take_a_moment() -> Mapping[int, Notebook]:
        await asyncio.sleep(0)
        return train

    async def test(feed: Feed) -> None:
        board_reader: Any = feed._board_reader
        await asyncio.gather(*(feed.full() for _ in range(3)))

        assert board_reader.asked[0] == train

    with_feed(test, take_a_moment)()
    assert not caplog.records


def test_managers_that_do_not_answer_stop_no_stream_and_are_asked_once(caplog: pytest.LogCaptureFixture) -> None:
    asked = 0

    async def hang() -> dict[int, Notebook]:
        nonlocal asked
        asked += 1
        await asyncio.Event().wait()
        return {}

    async def test(feed: Feed) -> None:
        page = Page(feed)
        await page.until(lambda: len(page.texts) > 30)

        assert asked == 1

    with_feed(test, hang)()
    assert [record.message for record in caplog.records if "without their notebooks" in record.message] == [
        "tfgpu_magic: kernels are shown without their notebooks: they do not answer"
    ]


def test_a_worker_hands_on_what_fails_and_ends_after_its_last_job() -> None:
    async def run() -> list[object]:
        worker, ended = JobThread(), threading.Event()
        with pytest.raises(ZeroDivisionError):
            await worker.do(lambda: 1 / 0)
        done = await worker.do(lambda: threading.current_thread().daemon)
        worker.close(ended.set)
        return [done, ended.wait(5 * SLACK)]

    assert asyncio.run(run()) == [True, True]
