"""Work that may hang: no caller waits for it beyond its time, and none begins to hang beside it."""

from __future__ import annotations

import threading
import time

import pytest

from tfgpu_magic.ground.bounded import run_within


def test_while_a_job_hangs_no_other_is_begun_and_after_it_there_is() -> None:
    go_on = threading.Event()
    begun: list[int] = []
    first = run_within(0.01, lambda: go_on.wait(30))
    second = run_within(0.01, lambda: begun.append(2))
    go_on.set()
    while (third := run_within(10, lambda: 3)) is None:
        time.sleep(0.01)

    assert (first, second, begun, third) == (None, None, [], 3)


def test_what_another_thread_waits_for_meanwhile_does_not_hang_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    waited, go_on, join = threading.Event(), threading.Event(), threading.Thread.join

    def noted(thread: threading.Thread, timeout: float | None = None) -> None:
        waited.set()
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", noted)
    done: list[bool | None] = []
    other = threading.Thread(target=lambda: done.append(run_within(30, lambda: go_on.wait(30))))
    other.start()
    waited.wait(30)
    second = run_within(30, lambda: 2)
    go_on.set()
    other.join()

    assert (second, done) == (2, [True])
