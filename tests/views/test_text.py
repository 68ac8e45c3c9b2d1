"""The table as text."""

from __future__ import annotations

from dataclasses import replace

from tests.figures import jax
from tests.sizes import GIB
from tfgpu_magic.monitor.report import GpuUse
from tfgpu_magic.views.phrases import called
from tfgpu_magic.views.text import render

from .tables import ABSENT, BUSY, EMPTY, HOSTILE, process, torch


def test_columns_are_aligned_and_units_stand_once() -> None:
    assert render(BUSY) == "\n".join(
        [
            " GPU  Name       TF              Held      Free  This notebook               Policy",
            "   0  A100-80GB  GPU:0  61.2 / 80 GiB  18.8 GiB  in use 31.2  peak 44.9 GiB  limit 48 GiB",
            "   1  A100-80GB  -       0.5 / 80 GiB  79.0 GiB                              hidden",
            "   2  Tesla T4   -      N/A: the GPU is lost. Others go on.",
            " GPU   PID  Type  Owner              Held",
            "   0  2373     C  this notebook  48.0 GiB",
            "   0  2533     C  eval.ipynb     <0.1 GiB",
            "   1    11     C  eval.ipynb          N/A",
            "   1     -     -  others         13.0 GiB",
            "TensorFlow is ready.",
        ]
    )


def test_columns_without_a_word_are_left_out_and_nobody_is_said() -> None:
    assert render(EMPTY) == "\n".join(
        [
            " GPU  Name          Held      Free",
            "   0  A100  0.0 / 16 GiB  16.0 GiB",
            "No process holds GPU memory.",
        ]
    )


def test_nobody_is_not_said_where_a_gpu_could_not_tell() -> None:
    deaf = replace(EMPTY, gpus=(replace(EMPTY.gpus[0], error="no list of processes"),))

    assert "No process" not in render(deaf)
    assert "GPU 0: no list of processes." in render(deaf)


def test_without_a_driver_it_says_what_to_do_and_how_to_try_it() -> None:
    assert render(ABSENT).splitlines() == [
        "No NVIDIA driver was found.",
        "To try it without a GPU, on a simulated machine:",
        "  python -m tfgpu_magic.simgpu --gpus 4x16GiB -- jupyter lab",
        "TensorFlow is not imported.",
    ]


def test_a_driver_that_hangs_is_no_reason_to_simulate() -> None:
    assert render(replace(ABSENT, absent=False, summary="")) == "No NVIDIA driver was found."


def test_a_simulated_machine_says_so() -> None:
    assert "Simulated GPUs:" in render(replace(EMPTY, simulated=True))
    assert "Simulated" not in render(EMPTY)


def test_hostile_names_stay_in_their_line() -> None:
    shown = render(replace(EMPTY, processes=(process(owner=HOSTILE), process(owner="x" * 10_000))))

    assert len(shown.splitlines()) == 5
    assert not set(shown) & set("\u202e\x1b\ud800")
    assert max(map(len, shown.splitlines())) < 100


def test_wide_characters_take_two_columns() -> None:
    processes = (process(owner="学習.ipynb"), process(owner="abcd.ipynb"))
    first, second = render(replace(EMPTY, processes=processes)).splitlines()[-2:]

    assert first.replace("学習", "abcd") == second


def test_jaxs_own_figures_stand_below_the_process() -> None:
    use = GpuUse(gpu="0", figures=jax(GIB, 2 * GIB, 4 * GIB))
    shown = render(replace(EMPTY, processes=(replace(process(), use=use),)))

    assert "JAX in use 1.0  peak 1.0  pool 2.0  limit 4.0 GiB" in shown


def test_where_no_notebook_looks_each_process_has_its_policy() -> None:
    asked = replace(process(owner="train.py"), use=GpuUse(gpu="0", policy="limit 3.2 GiB", figures=jax(GIB, 0, 0)))
    *_, head, first, _, last = render(replace(EMPTY, processes=(asked, process()))).splitlines()

    assert head.endswith("Held  Policy")
    assert first.endswith("GiB  limit 3.2 GiB")
    assert "limit" not in last
    assert "limit 3.2 GiB" not in render(replace(BUSY, processes=(asked,)))


def test_pytorchs_own_figures_stand_below_the_process() -> None:
    shown = render(replace(EMPTY, processes=(torch(0.5, 1.25), process()))).splitlines()

    assert shown[-2].split() == ["PyTorch", "allocated", "0.5", "peak", "0.5", "reserved", "1.2", "GiB"]
    assert shown[-3].split()[3] == shown[-1].split()[3] == "eval.ipynb"


def test_a_session_or_a_program_is_called_what_it_is() -> None:
    shown = render(called(BUSY, "session"), here="session")

    assert "this session" in shown
    assert "This session" in shown
    assert "notebook" not in shown


def test_what_is_held_without_use_stands_with_its_owner() -> None:
    table = replace(BUSY, time=100.0 + 7200, summary="", processes=(replace(process(8), unused=100.0),))

    assert render(table).splitlines()[4:] == [
        " GPU  PID  Type  Owner                      Held",
        "   0    7     C  eval.ipynb, unused 2 h  8.0 GiB",
    ]
