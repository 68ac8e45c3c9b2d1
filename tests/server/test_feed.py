"""The feed by itself: each client is sent all that it may know, however slow it or another one is."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tornado.websocket import WebSocketClosedError

from tests.server.pages import LOG, Page, nobody, with_feed
from tfgpu_magic.monitor.rows import Table
from tfgpu_magic.server.feed import Feed, States
from tfgpu_magic.views import message

pytestmark = pytest.mark.usefixtures("quick_feed")


def test_a_client_that_does_not_read_has_one_message_on_its_way_and_others_go_on() -> None:
    async def test(feed: Feed) -> None:
        deaf, page = Page(feed, takes=False), Page(feed)
        await page.until(lambda: len(page.texts) > 30)

        assert deaf.kinds == ["full"]
        deaf.taken.set_result(None)
        await page.until(lambda: len(deaf.texts) > 1)
        assert deaf.kinds == ["full", "full"]  # too much has happened: all of it once more

    with_feed(test)


def test_what_is_sent_to_many_is_written_once() -> None:
    async def test(feed: Feed) -> None:
        pages = [Page(feed) for _ in range(40)]
        await pages[0].until(lambda: len(pages[-1].texts) > 3)

        assert len({id(page.texts[2]) for page in pages}) == 1
        assert len({id(page.texts[0]) for page in pages}) == 1

    with_feed(test)


def test_a_client_that_is_gone_harms_nobody() -> None:
    async def test(feed: Feed) -> None:
        gone, page = Page(feed), Page(feed)
        gone.closed = True
        lost = Page(feed, takes=False)
        await page.until(lambda: lost.texts)
        lost.taken.set_exception(WebSocketClosedError())
        feed.leave(lost.client)
        feed.leave(lost.client)
        await page.until(lambda: len(page.texts) > 5)

    with_feed(test)


def test_nobody_looks_when_there_is_no_client() -> None:
    async def test(feed: Feed) -> None:
        page = Page(feed)
        await page.until(lambda: page.texts)
        feed.leave(page.client)
        await asyncio.sleep(0.1)
        board_reader: Any = feed._board_reader
        before = board_reader.count
        await asyncio.sleep(0.2)

        assert board_reader.count == before
        again = Page(feed)
        await page.until(lambda: len(again.texts) > 2)
        assert again.kinds[:2] == ["full", "tick"]

    with_feed(test)


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


def test_every_client_is_told_the_servers_pace() -> None:
    async def test(feed: Feed) -> None:
        page = Page(feed)
        await page.until(lambda: page.texts)

        assert [json.loads(text)["every"] for text in (page.texts[0], await feed.full())] == [0.01, 0.01]

    with_feed(test)


def test_the_same_state_is_not_new_and_who_has_neither_of_the_last_two_needs_all() -> None:
    states = States()
    for number in (1, 1, 2, 3):
        states.add(message.state(Table(time=number)))

    assert states.sequence == 3
    assert [states.tick(base) is None for base in (0, 1, 2, 3)] == [True, True, False, False]
    assert json.loads(states.tick(3) or "")["patch"] == {"time": 3}


def test_lists_of_processes_are_wanted_as_long_as_one_client_looks_at_them() -> None:
    async def test(feed: Feed) -> None:
        bar, panel = Page(feed), Page(feed)
        board_reader: Any = feed._board_reader

        async def wanted(bar_looks: bool, panel_looks: bool) -> bool:
            feed.attend(bar.client, processes=bar_looks)
            feed.attend(panel.client, processes=panel_looks)
            count = len(board_reader.processes)
            await bar.until(lambda: len(board_reader.processes) > count + 1)
            return bool(board_reader.processes[-1])

        assert [await wanted(*both) for both in ((True, True), (False, True), (False, False))] == [True, True, False]
        feed.leave(panel.client)
        assert await wanted(True, False)

    with_feed(test)
