"""The table as the lines of a terminal, in every size."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from rich.console import Console

from tests.figures import tensorflow
from tests.rows import changed, changed_gpu
from tests.sizes import GIB
from tests.views.tables import ABSENT, BUSY, EMPTY, HOSTILE, process
from tfgpu_magic.ground.process_kind import RoomWait
from tfgpu_magic.ground.report import GpuUse, Parked
from tfgpu_magic.ground.rows import Table
from tfgpu_magic.ground.terminal import screen

USED = replace(
    BUSY,
    summary="",
    every=1.0,
    time=100.0 + 9 * 60,
    gpus=(changed_gpu(BUSY.gpus[0], sensors={"utilisation": 37}), *BUSY.gpus[1:]),
    processes=(
        replace(
            process(48, owner="train.ipynb", pid=2373),
            use=GpuUse(gpu="0", policy="limit 48 GiB", figures=tensorflow(31 * GIB, 45 * GIB)),
        ),
        replace(
            changed(process(10.1, pid=2533), unused=100.0),
            use=GpuUse(gpu="0", policy="growth", parked=Parked(size=25 * GIB // 2)),
        ),
        changed(process(3.1, owner="maria", pid=2811), who="other"),
        process(13, gpu="1", pid=None, owner="others"),
    ),
)


def lines(table: Table, width: int = 80, height: int = 24) -> list[str]:
    console = Console(width=width, height=height, no_color=True, legacy_windows=False)
    with console.capture() as drawn:
        console.print(screen(table, width=width, height=height))
    return [line.rstrip() for line in drawn.get().splitlines()]


def test_80_columns_have_all_figures() -> None:
    assert lines(USED) == [
        "GPU memory, in GiB                                          live · 1 s · q quits",
        "        PID  Owner                         Held  In use    Peak  Policy",
        "  0 A100-80GB █████████████████▒▒▒▒▒·······  61.2 / 80 GiB  free  18.8  use  37%",
        "       2373  train.ipynb                   48.0    31.0    45.0  limit 48 GiB",
        "       2533  eval.ipynb, unused 9 min      10.1                  parked 12.5 GiB",
        "       2811  maria                          3.1",
        "  1 A100-80GB ▒·····························  0.5 / 80 GiB  free  79.0  use  N/A",
        "          -  others                        13.0",
        "  2 Tesla T4  N/A: the GPU is lost. Others go on.",
    ]


@pytest.mark.parametrize("name", ["a-notebook-with-a-long-name.ipynb", "学習学習学習学習学習学習.ipynb"])
@pytest.mark.parametrize(("unused", "said"), [(59 * 60, "unused 59 min"), (47 * 3600, "unused 47 h")])
def test_80_columns_cut_a_long_name_and_not_how_long_it_is_unused(name: str, unused: float, said: str) -> None:
    row = changed(process(10.1, owner=name), unused=USED.time - unused)
    (drawn,) = [line for line in lines(replace(USED, processes=(row,))) if line.endswith("10.1")]

    assert "..." in drawn
    assert f", {said} " in drawn


def test_80_columns_say_for_how_much_a_notebook_waits_and_until_when() -> None:
    waits = RoomWait(("GPU-0", "GPU-1"), 100.0, None, 1000.0, 64 * GIB // 10, any_gpu=True)
    row = changed(process(0, owner="third.ipynb", pid=41), waits=waits)
    (drawn,) = [line for line in lines(replace(USED, processes=(row,))) if "third" in line]

    assert re.fullmatch(r" +41  third\.ipynb +waits for 6\.4 GiB on any GPU until \d\d:\d\d", drawn)


@pytest.mark.parametrize("table", [USED, EMPTY, ABSENT, replace(USED, stale_since=1.0)], ids=str)
@pytest.mark.parametrize(("width", "height"), [(200, 50), (80, 24), (60, 10), (20, 3)])
def test_no_line_is_wider_and_no_screen_longer_than_the_terminal(table: Table, width: int, height: int) -> None:
    drawn = lines(table, width, height)

    assert len(drawn) <= height
    assert max(map(len, drawn)) <= width


def test_40_columns_have_the_sentences_whole_and_say_since_when_a_table_is_stale() -> None:
    drawn = lines(replace(USED, summary="A note of more than forty columns, whole."), 40)

    assert drawn[0] == "GPU memory, in GiB  live · 1 s · q quits"
    assert drawn[-2:] == ["A note of more than forty columns,", "whole."]
    assert "machine:" in lines(ABSENT, 40)
    assert "stale since " in lines(replace(USED, stale_since=1.0))[0]
    assert screen(ABSENT, width=0, height=9)  # as COLUMNS=0 has it


def test_a_low_terminal_shows_every_gpu_and_says_how_much_is_left_out() -> None:
    many = tuple(process(1, pid=number) for number in range(10, 30))
    drawn = lines(replace(USED, processes=many), height=10)

    assert [line[2] for line in drawn if line[:3].strip().isdigit() and line[3] == " "] == ["0", "1", "2"]
    assert any("more," in line and line.endswith("GiB") for line in drawn)
    assert lines(replace(USED, processes=many), height=5)[1] == "Processes for which this terminal has no room: 20"


@pytest.mark.parametrize(
    ("height", "gpus", "end"),
    [
        (80, 64, ["", "A note."]),
        (50, 45, ["and 19 more GPUs", "", "A note."]),
        (3, 0, ["and 64 more GPUs"]),
    ],
)
def test_of_many_gpus_those_without_room_are_counted_above_the_notes(height: int, gpus: int, end: list[str]) -> None:
    names = [str(number) for number in range(64)]
    drawn = lines(
        replace(
            USED,
            gpus=tuple(changed_gpu(USED.gpus[0], index=int(name)) for name in names),
            processes=tuple(process(1, pid=number, gpu=name) for name in names for number in (10, 11)),
            summary="A note.",
        ),
        height=height,
    )

    assert len([line for line in drawn if "A100" in line]) == gpus
    assert [line.strip() for line in drawn[2 + gpus :]] == end


def test_hostile_names_stay_in_their_line_and_send_nothing_to_the_terminal() -> None:
    (row,) = [line for line in lines(replace(USED, processes=(process(owner=HOSTILE),)), 120) if "<img" in line]

    assert not {"\x1b", "\u202e", "\ud800"} & set(row)


def test_of_unified_memory_what_other_programs_use_is_not_drawn_as_free() -> None:
    free = USED.gpus[0].gpu.free or 0
    much, little = (
        lines(replace(USED, gpus=(changed_gpu(USED.gpus[0], unified=True, free=size),)))[2].count("·")
        for size in (free, free // 3)
    )

    assert 0 < little < much
