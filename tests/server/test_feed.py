"""The feed by itself: each client is sent all that it may know, at its pace, however slow it or another one is."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tornado.websocket import WebSocketClosedError

from tests.server.pages import LOG, Page, nobody, with_feed
from tests.views.test_message import applied
from tfgpu_magic.server import feed as feeding
from tfgpu_magic.server.feed import Feed

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


def test_a_client_that_was_slow_for_a_moment_is_sent_what_it_missed() -> None:
    async def test(feed: Feed) -> None:
        slow, page = Page(feed, takes=False), Page(feed)
        await page.until(lambda: len(page.texts) > 5)
        slow.takes = True
        slow.taken.set_result(None)
        await page.until(lambda: len(slow.texts) > 1)
        first, second = map(json.loads, slow.texts[:2])

        assert (second["type"], second["base"]) == ("tick", first["sequence"])
        assert applied(first["state"], second["patch"])["time"] == second["sequence"]

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


def test_each_client_is_told_the_pace_that_it_is_granted_and_who_asks_once_when_to_come_back() -> None:
    async def test(feed: Feed) -> None:
        page, slow = Page(feed, every=1.0), Page(feed, every=7.5)
        await page.until(lambda: page.texts and slow.texts)

        assert [json.loads(one.texts[0])["every"] for one in (page, slow)] == [1.0, 7.5]
        assert json.loads(await feed.full())["every"] == feeding.LONGEST_INTERVAL

    with_feed(test)


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


def test_a_client_that_begins_to_look_at_processes_is_told_soon_however_rarely_it_wants_to_hear() -> None:
    async def test(feed: Feed) -> None:
        page, other = Page(feed, every=60.0), Page(feed)
        feed.attend(page.client, processes=False)
        await page.until(lambda: page.texts and len(other.texts) > 10)
        before = len(page.texts)
        feed.attend(page.client, processes=True)
        await page.until(lambda: len(page.texts) > before + 1)

        assert before == 1

    with_feed(test)
