"""The thread that a feed's looks are made in."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tfgpu_magic.server.worker import Worker


def test_a_worker_hands_on_what_fails_and_ends_after_its_last_job() -> None:
    async def run() -> list[object]:
        worker, ended = Worker(), threading.Event()
        with pytest.raises(ZeroDivisionError):
            await worker.do(lambda: 1 / 0)
        done = await worker.do(lambda: threading.current_thread().daemon)
        worker.close(ended.set)
        return [done, ended.wait(5)]

    assert asyncio.run(run()) == [True, True]
