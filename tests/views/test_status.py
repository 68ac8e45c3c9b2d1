"""What the magic returns, in a real IPython."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.formatters import DisplayFormatter

from tfgpu_magic.monitor.report import Report
from tfgpu_magic.views.status import Status, status

from .tables import BUSY

if TYPE_CHECKING:
    import pytest


def test_ipython_shows_both_forms_and_print_the_text() -> None:
    data, _ = DisplayFormatter().format(Status(BUSY))  # type: ignore[no-untyped-call]

    assert set(data) == {"text/plain", "text/html"}
    assert data["text/plain"] == repr(Status(BUSY))
    assert data["text/plain"].startswith(" GPU  Name")
    assert data["text/html"].startswith('<div class="tfgpu">')


def test_a_status_is_had_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)

    shown = status(lambda _: Report(pid=1, summary="TensorFlow is not imported."), timeout=5)

    assert shown.table.summary == "TensorFlow is not imported."
    assert "TensorFlow is not imported." in repr(shown)
