"""Why there was no memory, from what the error, the pool and the driver tell."""

from __future__ import annotations

import pytest

from tests.insight.cases import gpu, pool, shortage
from tests.sizes import GIB, MIB
from tfgpu_magic.frameworks.pool import Pool
from tfgpu_magic.frameworks.shortage import Shortage
from tfgpu_magic.ground.snapshot import Gpu
from tfgpu_magic.insight.why import explanation
from tfgpu_magic.insight.why.explanation import Cause, find_cause

GROWS = {"grows": True}


@pytest.mark.parametrize(
    ("said", "of", "on", "cause"),
    [
        (shortage(2), pool(0.4, 1, capped=True), gpu(), "limit"),
        (shortage(2), pool(0.4, 1), gpu(), "pool"),
        (shortage(0.3), pool(0.1, 1, peak=0.9, capped=True), gpu(), "limit"),  # what failed has let go since
        (shortage(0.3), pool(0.4, 1, capped=True), gpu(), "pieces"),
        (shortage(0.3), pool(0.1, 1, peak=0.9, reached=GIB // 2, capped=True), gpu(), "pieces"),  # the peak was before
        (shortage(0.3), pool(0.1, 1, peak=0.9, reached=GIB * 3 // 4, capped=True), gpu(), "limit"),
        (shortage(20), pool(0.4, 1, capped=True), gpu(total=16), "size"),
        (shortage(2), pool(0.4, 12, **GROWS), gpu(free=1), "gpu"),
        (shortage(2), pool(0.4, 12, **GROWS), gpu(free=4), "pieces"),
        (shortage(2), pool(4, None, **GROWS, taken=8 * 2**30), gpu(free=1), "pieces"),  # it has more than it uses
        (shortage(2), pool(4, None, **GROWS, taken=5 * 2**30), gpu(free=1), "gpu"),
        (shortage(2), pool(4, None, peak=8, **GROWS, taken=8 * GIB), gpu(free=1), "gpu"),  # what failed let go since
        (shortage(2), pool(4, None, reached=int(7.9 * GIB), **GROWS, taken=8 * GIB), gpu(free=4), "unknown"),
        (shortage(None), pool(0.4, 1, capped=True), gpu(), "limit"),
        (shortage(None), pool(0.4, 12, **GROWS), gpu(free=0.1), "gpu"),
        (shortage(2), None, gpu(free=1), "gpu"),
        (shortage(2), None, gpu(free=3), "unknown"),
        (shortage(2), None, None, "unknown"),
        (shortage(2), pool(0.4, None, **GROWS), gpu(free=None, total=None), "unknown"),
        (shortage(None, kind="driver"), pool(), gpu(free=0.1), "gpu"),
        (shortage(None, kind="library", library="cuDNN"), pool(), gpu(free=0.1), "library"),
    ],
)
def test_the_cause_follows_from_the_figures(said: Shortage, of: Pool | None, on: Gpu | None, cause: Cause) -> None:
    assert find_cause(said, of, on, started=True) == cause


def test_a_framework_that_has_not_started_found_no_room_for_that() -> None:
    assert find_cause(shortage(None, kind="driver"), None, gpu(free=0.1), started=False) == "start"


@pytest.mark.parametrize(
    ("certain", "on", "is_memory"),
    [
        (True, gpu(free=9), True),
        (False, gpu(free=9), False),  # it failed for another reason
        (False, gpu(free=0.1), True),
        (False, gpu(free=None), False),
        (False, None, False),
    ],
)
def test_a_library_that_cannot_start_is_out_of_memory_only_where_next_to_nothing_is_free(
    certain: bool, on: Gpu | None, is_memory: bool
) -> None:
    assert explanation.is_memory(shortage(None, kind="library", certain=certain), on) == is_memory
    assert explanation.LIBRARY_ROOM == 512 * MIB
