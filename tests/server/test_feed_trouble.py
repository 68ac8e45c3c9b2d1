"""The feed in trouble: looks that hang, faults of ours, kernels and managers that cannot be asked."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.server.pages import Page, with_feed
from tests.slack import SLACK
from tfgpu_magic.monitor.owners import Notebook
from tfgpu_magic.server.feed import Feed, States

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.usefixtures("quick_feed")


def test_a_look_that_hangs_is_stale_holds_up_nothing_and_heals() -> None:
    async def test(feed: Feed) -> None:
        page = Page(feed)
        await page.until(lambda: len(page.texts) > 2)
        board_reader: Any = feed._board_reader
        board_reader.go.clear()
        await page.until(lambda: b'"stale"' in page.texts[-1])
        stale = json.loads(page.texts[-1])["patch"]["stale"]
        sent, begun = len(page.texts), time.monotonic()
        late = Page(feed)
        answer = json.loads(await feed.full())
        await page.until(lambda: late.texts)

        assert time.monotonic() - begun < 0.5 * SLACK
        await page.until(lambda: len(page.texts) > sent)  # it is told that we live
        assert abs(time.time() - stale) < 2 * SLACK
        assert "stale" in answer["state"]
        assert "stale" in json.loads(late.texts[0])["state"]
        board_reader.go.set()
        await page.until(lambda: b'"stale":null' in page.texts[-1] or b'"stale"' not in page.texts[-1])

    with_feed(test)


def test_kernels_that_cannot_be_asked_are_said_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> dict[int, Notebook]:
        raise OSError("no database")

    async def test(feed: Feed) -> None:
        page = Page(feed)
        await page.until(lambda: len(page.texts) > 5)

    with_feed(test, fail)

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

    with_feed(test)

    assert "the streams end" in caplog.text


def test_two_who_come_at_once_wait_for_the_same_answer_of_the_managers(caplog: pytest.LogCaptureFixture) -> None:
    train = {7: Notebook(path="train.ipynb")}

    async def take_a_moment() -> Mapping[int, Notebook]:
        await asyncio.sleep(0.1)
        return train

    async def test(feed: Feed) -> None:
        board_reader: Any = feed._board_reader
        await asyncio.gather(*(feed.full() for _ in range(3)))

        assert board_reader.asked[0] == train

    with_feed(test, take_a_moment)
    assert not caplog.records


def test_managers_that_do_not_answer_stop_no_stream_and_are_asked_once(caplog: pytest.LogCaptureFixture) -> None:
    asked = 0

    async def hang() -> dict[int, Notebook]:
        nonlocal asked
        asked += 1
        await asyncio.sleep(60)
        return {}

    async def test(feed: Feed) -> None:
        page = Page(feed)
        await page.until(lambda: len(page.texts) > 30)

        assert asked == 1

    with_feed(test, hang)
    assert [record.message for record in caplog.records if "without their notebooks" in record.message] == [
        "tfgpu_magic: kernels are shown without their notebooks: they do not answer"
    ]
