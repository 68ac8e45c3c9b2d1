"""What a table and its message cost grows with their rows, and not with the square: by calls, and not by a clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.sizes import GIB
from tfgpu_magic.ground import terminal
from tfgpu_magic.ground.rows import Notebook, Owner, Table
from tfgpu_magic.ground.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.machine.board.history import History
from tfgpu_magic.machine.owners import attribution
from tfgpu_magic.tell import page_json
from tfgpu_magic.tell.tabulate import ProcessFacts, make_table


def table(gpus: int, notebooks: int) -> Table:
    """Return a table of notebooks that have one name, each on every GPU."""
    machine = [Gpu(index=number, uuid=f"GPU-{number}", total=80 * GIB, used=8 * GIB) for number in range(gpus)]
    pids = range(1000, 1000 + notebooks)
    rows = [Process(gpu.label, pid, "C", GIB // 64, 0) for gpu in machine for pid in pids]
    known = {pid: Notebook(name="train.ipynb", path=f"{pid}/train.ipynb", kernel=str(pid)) for pid in pids}
    found = {pid: Owner(pid=pid, who="mine", text="train.ipynb", notebook=known[pid], kernel=pid) for pid in pids}
    return make_table(
        Snapshot(time=9.0, listed_at=9.0, gpus=tuple(machine), processes=tuple(rows)),
        ProcessFacts(owners=attribution._with_distinct_names(found), notebooks=known),
    )


def message_of(gpus: int, notebooks: int) -> None:
    """Make the table, its message, what has changed in it, and a terminal's screen of it."""
    made = table(gpus, notebooks)
    state = page_json.state(made)
    page_json.patch(state, {**state, "time": 10.0})
    page_json.full(1, state, History())
    terminal.screen(made, width=200, height=50)


def calls(do: Callable[[], None]) -> int:
    """Return how many functions are called, and generators resumed."""
    count = 0

    def counting(_: object, event: str, __: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(counting)
    try:
        do()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize(("few", "many"), [((2, 20), (2, 200)), ((2, 20), (20, 20)), ((1, 100), (1, 1000))])
def test_ten_times_the_rows_cost_ten_times_as_much(few: tuple[int, int], many: tuple[int, int]) -> None:
    message_of(1, 1)  # what is made once
    some, all_of_them = (calls(partial(message_of, *size)) for size in (few, many))

    assert all_of_them < 13 * some
