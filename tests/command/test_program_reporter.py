"""The reporter of a program never stands in the way of the program's own imports, in whatever thread they are."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.waiting import until
from tfgpu_magic.reporter import Reporter


@pytest.fixture
def reporter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Reporter:
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    return Reporter(name="program.py")


def test_frameworks_that_two_threads_import_at_once_start_one_thread(
    reporter: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, begun, go = reporter._thread.start, [], threading.Event()

    def slowly() -> None:
        begun.append(threading.current_thread())
        go.wait()
        start()

    monkeypatch.setattr(reporter._thread, "start", slowly)
    errors: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    imports = [threading.Thread(target=reporter._imported, args=(None,)) for _ in range(2)]
    for one in imports:
        one.start()
    until(lambda: begun)
    go.set()
    for one in imports:
        one.join()
    reporter.stop()

    assert (len(begun), errors) == (1, [])


def test_where_no_thread_can_be_started_an_import_goes_on(reporter: Reporter, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def fail() -> None:
        tried.append("a thread")
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(reporter._thread, "start", fail)
    reporter._imported(None)
    reporter._imported(None)

    assert tried == ["a thread"] * 2  # the next import tries again


def test_what_a_program_asks_or_imports_at_its_very_end_waits_for_nothing(reporter: Reporter) -> None:
    def ends() -> None:
        reporter.stop()
        reporter.announce()
        reporter._imported(None)

    program = threading.Thread(target=ends, daemon=True)
    program.start()
    program.join(20)

    assert not program.is_alive()


def test_a_program_that_starts_kernels_promises_nothing_until_it_imports_a_framework_itself(
    reporter: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[bool] = []
    monkeypatch.setattr("tfgpu_magic.publisher.Publisher.publish", lambda _, **report: said.append(report["promises"]))

    reporter.announce()
    reporter._starts_kernels(None)
    monkeypatch.setattr("tfgpu_magic.frameworks.imported", lambda: {"PyTorch"})
    reporter.announce()

    assert said == [True, False, True]
