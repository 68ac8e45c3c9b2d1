"""Figures and names as every view writes them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.figures import pytorch, tensorflow
from tests.rows import changed, changed_gpu
from tests.sizes import GIB
from tfgpu_magic.engine.status import Status
from tfgpu_magic.ground import phrases
from tfgpu_magic.ground.report import GpuUse, Parked
from tfgpu_magic.ground.rows import Notebook
from tfgpu_magic.ground.snapshot import Gpu

from .tables import BUSY, EMPTY, process
from .test_table import Page, html
from .test_terminal import lines


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (None, "N/A"),
        (0, "0.0"),
        (1, "<0.1"),
        (8 * 2**20, "<0.1"),
        (52 * 2**20, "0.1"),
        (GIB, "1.0"),
        (int(61.2 * GIB), "61.2"),
        (1500 * GIB, "1500.0"),
    ],
)
def test_figures_have_one_decimal_and_little_is_not_nothing(size: int | None, shown: str) -> None:
    assert phrases.gib(size) == shown
    assert phrases.with_unit(size) == ("N/A" if size is None else f"{shown} GiB")


@pytest.mark.parametrize(
    ("length", "shown"),
    [
        (0.84, "0.8 s"),
        (20, "20 s"),
        (60, "1 min"),
        (125, "2 min 5 s"),
        (3599.7, "1 h"),
        (12_030, "3 h 20 min"),
        (172_800, "48 h"),
    ],
)
def test_times_are_written_in_their_two_largest_units(length: float, shown: str) -> None:
    assert phrases.seconds(length) == shown


@pytest.mark.parametrize(
    ("limit", "total", "shown"),
    [
        (None, 80, "3.0 / 80 GiB"),
        (32, 80, "3.0 / 80 GiB (your limit: 32 GiB)"),
        (32, 32, "3.0 / 32 GiB (your limit)"),
    ],
)
def test_what_the_driver_allows_here_stands_beside_the_total(limit: int | None, total: int, shown: str) -> None:
    known = Gpu(0, name="A100", used=3 * GIB, total=total * GIB, free=9 * GIB)
    gpu = known._replace(limit=None if limit is None else limit * GIB)

    assert phrases.memory(gpu) == shown
    assert gpu.capacity == (limit or total) * GIB
    assert bool(phrases.driver_reserve(gpu)) == (limit is None)  # what is beyond the limit is not the driver's


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("eval.ipynb", "eval.ipynb"),
        ("学習.ipynb", "学習.ipynb"),
        ("a\nb\tc\x00", "a?b?c?"),
        ("\u202etxt.exe", "?txt.exe"),
        ("\u2028", "?"),
        ("\ud800", "?"),
        ("jobs-2026-" + "x" * 30 + "train.py", "jobs-202...xtrain.py"),
        ("", ""),
    ],
)
def test_names_are_plain_and_cut_in_the_middle(text: str, shown: str) -> None:
    assert phrases.clean(text, longest=20) == shown


@given(st.text(st.characters(exclude_categories=()), max_size=60))
def test_any_name_can_be_printed_in_one_line(text: str) -> None:
    shown = phrases.clean(text, longest=20)

    assert len(shown) <= 20
    assert len(shown.splitlines()) <= 1
    shown.encode()  # no unpaired surrogate is left


def test_several_pools_have_peaks() -> None:
    row = changed_gpu(BUSY.gpus[0], figures=(*tensorflow(GIB, 10 * GIB), *pytorch(1, 2)))
    in_use, peak = tensorflow(GIB, 10 * GIB)

    assert phrases.use(row) == "in use  1.0  peak 10.0 GiB"
    assert phrases.use(changed_gpu(row, figures=(in_use, replace(peak, what="peaks")))) == "in use  1.0  peaks 10.0 GiB"
    assert phrases.use(changed_gpu(row, figures=())) == ""


@pytest.mark.parametrize(
    ("use", "held", "shown"),
    [
        (GpuUse(gpu="0", parked=Parked(size=12 * GIB)), 0.5, "parked: 12 GiB in host memory, 0.5 GiB stay"),
        (GpuUse(gpu="0", parked=Parked(size=12 * GIB)), None, "parked: 12 GiB in host memory"),
        (GpuUse(gpu="0", parked=Parked(back=3.21)), 12.0, "back in 3.2 s"),
    ],
)
def test_how_a_process_is_parked_stands_below_it_in_every_view(use: GpuUse, held: float | None, shown: str) -> None:
    row = replace(process(held), use=replace(use, figures=pytorch(0, 0)))
    table = replace(EMPTY, processes=(row,))

    assert phrases.details(row) == [shown, "PyTorch allocated 0.0  peak 0.0  reserved 0.0 GiB"]
    assert shown in repr(Status(table))
    assert shown in Page(html(table)).text
    assert ("parked" in "".join(lines(table, 200))) == (use.parked.size is not None)


def test_what_is_special_about_a_gpu_stands_by_its_name() -> None:
    assert phrases.name(BUSY.gpus[0].gpu._replace(mig=True, unified=True)) == "A100-80GB (MIG, unified)"


@pytest.mark.parametrize(
    ("state", "active", "unused", "shown"),
    [
        ("", None, None, "eval.ipynb"),
        ("busy", 0.0, None, "eval.ipynb, busy"),
        ("idle", 1000.0, None, "eval.ipynb, idle"),
        ("idle", None, None, "eval.ipynb, idle"),
        ("idle", 400.0, None, "eval.ipynb, idle 10 min"),
        ("idle", 1000.0 - 7200, None, "eval.ipynb, idle 2 h"),
        ("idle", 1000.0 - 3 * 86400, None, "eval.ipynb, idle 3 d"),
        ("idle", 400.0, 1000.0 - 7200, "eval.ipynb, unused 2 h"),
        ("idle", 400.0, 990.0, "eval.ipynb, idle 10 min"),
        ("idle", 400.0, 420.0, "eval.ipynb, unused 9 min"),
        ("idle", 1000.0 - 7200, 880.0, "eval.ipynb, idle 2 h, unused 2 min"),
        ("busy", 400.0, 1000.0 - 7200, "eval.ipynb, busy, unused 2 h"),
        ("", 400.0, 1000.0 - 7200, "eval.ipynb, unused 2 h"),
    ],
)
def test_a_notebook_says_what_it_does_and_that_its_memory_is_unused(
    state: str, active: float | None, unused: float | None, shown: str
) -> None:
    row = changed(process(), notebook=Notebook(path="/work/eval.ipynb", state=state, active=active), unused=unused)

    assert phrases.owner(row, 1000.0, longest=40) == shown


def test_this_notebook_need_not_say_that_it_is_busy() -> None:
    row = changed(process(), who="this", owner="this notebook", notebook=Notebook(state="busy"))

    assert phrases.owner(row, 1000.0, longest=40) == "this notebook"


def test_of_another_users_process_it_is_said_too() -> None:
    row = changed(process(), who="other", owner="maria", unused=0.0)

    assert phrases.owner(row, 7200.0, longest=40) == "maria, unused 2 h"


def test_a_percentage_that_is_not_known_is_not_nothing() -> None:
    assert [phrases.percent(part) for part in (None, 0, 37)] == ["N/A", "0%", "37%"]
