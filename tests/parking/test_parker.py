"""The helper itself, in this process: what it leaves to the next one when it leaves."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from tfgpu_magic.monitor.directory import BoardDirectory
from tfgpu_magic.parking import parker, record
from tfgpu_magic.parking.settings import LOCK, SOCKET


def test_one_whose_lock_was_removed_leaves_the_socket_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))

    async def story(place: BoardDirectory, held: int) -> bool:
        helper = asyncio.ensure_future(parker.Parker(place, held, record.Record(), []).run())
        listening = Path(place.short_path(SOCKET))
        while not listening.exists():
            await asyncio.sleep(0.01)
        place.remove(LOCK)
        place.remove(SOCKET)
        with socket.socket(socket.AF_UNIX) as following:
            following.bind(place.short_path(SOCKET))
            await asyncio.wait_for(helper, 60)
            return listening.exists()

    with BoardDirectory() as place:
        held = parker.lock(place)
        assert held is not None
        assert asyncio.run(story(place, held))
