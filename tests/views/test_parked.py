"""What is parked, in words: in text, in HTML, in a terminal and in messages, whatever a process calls itself."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests.sizes import GIB
from tests.views.tables import BUSY, HOSTILE, process
from tests.views.test_message import live
from tests.views.test_message import row as sent
from tests.views.test_table import Page
from tfgpu_magic.engine.status import Status
from tfgpu_magic.model import phrases, terminal
from tfgpu_magic.model.phrases import parked
from tfgpu_magic.model.rows import Notebook, Parked, ParkedState, ProcessRow, Table
from tfgpu_magic.monitor.table import message

NOW = time.time()
CLOCK = time.strftime("%H:%M", time.localtime(NOW))


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it be the day on which this file was read, also after midnight."""
    fixed = SimpleNamespace(localtime=lambda at=NOW: time.localtime(at), strftime=time.strftime)
    monkeypatch.setattr(phrases, "time", fixed)


def row(state: ParkedState = "parked", *, behind: str = "", trouble: str = "") -> ProcessRow:
    one = Parked(state=state, size=int(9.8 * GIB), since=NOW, behind=behind, trouble=trouble)
    idle = Notebook(path="eval.ipynb", state="idle", active=0.0)
    return replace(process(0), kind="", parked=one, notebook=idle)


def table(*rows: ProcessRow) -> Table:
    return replace(BUSY, processes=rows, time=NOW)


def test_it_says_how_much_is_in_host_memory_and_since_when() -> None:
    said = repr(Status(table(row())))

    assert re.search(r"eval\.ipynb +0\.0 GiB", said)
    assert f"  parked, 9.8 GiB in host memory, since {CLOCK}" in said
    assert "idle" not in said


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (row("parking"), f"is being parked, 9.8 GiB go to host memory, since {CLOCK}"),
        (
            row("waiting", behind="train.ipynb"),
            f"parked, 9.8 GiB in host memory, since {CLOCK}; waits for room: train.ipynb holds most of this GPU",
        ),
        (row("waiting"), f"parked, 9.8 GiB in host memory, since {CLOCK}; waits for room"),
        (row("restoring"), "comes back, 9.8 GiB from host memory"),
        (row("failed"), "its GPU state is lost: end it, which frees what it holds"),
        (row("restoring", trouble="hangs"), "comes back, 9.8 GiB from host memory; the driver does not answer"),
        (
            row("parking", trouble="hangs"),
            f"is being parked, 9.8 GiB go to host memory, since {CLOCK}; the driver does not answer",
        ),
    ],
)
def test_every_state_says_what_is_and_what_to_do(made: ProcessRow, said: str) -> None:
    assert parked(made) == [said]
    assert "parking failed" not in said  # where the state is lost, it was the return that failed
    assert said.replace("`", "") in " ".join(Page(Status(table(made))._repr_html_()).text.split())


def test_another_day_has_its_date() -> None:
    assert row().parked
    old = replace(row(), parked=Parked(state="parked", size=GIB, since=NOW - 3 * 86400))
    day = time.strftime("%Y-%m-%d", time.localtime(NOW - 3 * 86400))

    assert f"since {day} " in parked(old)[0]


def test_a_hostile_name_stays_a_name() -> None:
    made = row("waiting", behind=HOSTILE)
    drawn = Status(table(made))._repr_html_()

    assert "<img" not in drawn
    assert "\u202e" not in drawn + repr(Status(table(made)))


def test_the_terminal_says_it_in_the_processs_line() -> None:
    console = Console(width=140, height=30, record=True)
    console.print(terminal.screen(table(row()), width=140, height=30))

    assert re.search(r"eval\.ipynb .*parked, 9\.8 GiB in host memory", console.export_text())


def test_messages_carry_the_facts_and_no_sentence() -> None:
    one = sent(held=0, kind="", parked=row("waiting", behind="train.ipynb", trouble="hangs").parked, parks=True)

    assert {name: one[name] for name in ("parking", "away", "since", "behind", "trouble", "parks", "held")} == {
        "parking": "waiting",
        "away": int(9.8 * GIB),
        "since": round(NOW),
        "behind": "train.ipynb",
        "trouble": "hangs",
        "parks": True,
        "held": 0,
    }
    assert not {"parking", "away", "parks"} & sent().keys()


def test_what_is_parked_is_not_said_to_be_spare_or_unused() -> None:
    (one,) = message.state(live(table(row()), time=NOW))["rows"].values()

    assert not {"spare", "unused"} & one.keys()
