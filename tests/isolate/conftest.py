"""A nursery that is warm in a moment, and what must be as it was when a test is over."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psutil
import pytest

from tests.isolate.rig import belongings
from tfgpu_magic.isolate.keeper import KEEPER
from tfgpu_magic.isolate.nursery import PRELOAD


@pytest.fixture(scope="module")
def quick() -> Iterator[None]:
    """Calls without TensorFlow, for the tests of one module."""
    KEEPER.stop()
    KEEPER.preload = ("numpy", "tests.isolate.deeds")
    yield
    KEEPER.preload = PRELOAD
    KEEPER.stop()


@pytest.fixture
def light(quick: None) -> Iterator[None]:
    """Calls without TensorFlow; afterwards no process of theirs lives and no descriptor or thread of theirs is left."""
    nursery = KEEPER.nursery()
    assert nursery.is_warm(20)
    before = belongings()
    yield
    deadline = time.monotonic() + 1.0  # a call that was interrupted before it had a process gets one, which ends
    while (psutil.Process(KEEPER.nursery().pid).children() or belongings() != before) and time.monotonic() < deadline:
        time.sleep(0.01)
    if KEEPER.nursery() is nursery:  # else it was the test's to end it
        assert belongings() == before
    assert not psutil.Process(KEEPER.nursery().pid).children()
