"""`%tf_gpu track` in a real IPython with the real TensorFlow: what each cell did."""

from __future__ import annotations

import re
from types import SimpleNamespace

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import tfgpu_magic
from tests.insight.shell import cells
from tests.machines import machine_of
from tests.magic.shell import Seen
from tests.processes import on, run
from tests.sizes import MIB
from tests.waiting import until
from tfgpu_magic.insight.timeline import TIMELINE
from tfgpu_magic.simgpu import Machine

machine = machine_of("1x8GiB")

READY = "%tf_gpu limit 2GiB\nimport tensorflow as tf; small = tf.zeros(10)"
LINE = re.compile(r"^GPU:0: (?:([+-]\d+ MiB), )?\d+ \w+ in use, peak (\d+ MiB)$", re.MULTILINE)


def lines(seen: list[Seen]) -> list[tuple[str, ...] | None]:
    """Return the change and the peak that stand below each cell; None where no line does."""
    return [None if found is None else found.groups() for found in (LINE.search(one.text) for one in seen)]


def test_a_line_stands_below_each_cell_that_changes_much_or_is_higher_than_all_before(machine: Machine) -> None:
    _, on, *seen = run(
        machine,
        cells,
        READY,
        "%tf_gpu track on",
        "x = tf.zeros(100 * 2**18)",
        "1 + 1",
        "tf.zeros(300 * 2**18);",
        "tf.zeros(300 * 2**18); y = 1",
        "del x",
        "z = tf.zeros(2**18)",
        "%tf_gpu track off",
        "x = tf.zeros(100 * 2**18)",
    )

    assert "in use by 64 MiB or more" in on.text
    assert lines(seen) == [
        ("+100 MiB", "100 MiB"),
        None,
        (None, "400 MiB"),
        None,
        ("-100 MiB", "100 MiB"),
        None,
        None,
        None,
    ]


def test_the_size_from_which_on_a_line_stands_can_be_said_anew_and_unloaded_there_is_none(machine: Machine) -> None:
    seen = run(
        machine,
        cells,
        READY,
        "%tf_gpu track on --above 10MiB",
        "x = tf.zeros(12 * 2**18)",
        "%tf_gpu track on --above 1GiB",
        "y = tf.zeros(100 * 2**18)",
        "%tf_gpu track on --above 10MiB",
        "%unload_ext tfgpu_magic",
        "z = tf.zeros(100 * 2**18)",
    )

    assert [line is not None for line in lines(seen)] == [False, False, True, *[False] * 5]


def test_what_is_measured_below_a_cell_is_not_said_twice_and_the_line_that_calls_names_it(machine: Machine) -> None:
    grown = "kept = []\nfor _ in range(3):\n    kept.append(tf.zeros(100 * 2**18))"
    _, _, measured, plain, shown = run(
        machine,
        cells,
        READY,
        "%tf_gpu track on",
        f"%%tf_gpu measure\n{grown}",
        grown.replace("kept", "more"),
        "%tf_gpu track",
    )

    assert "300 MiB stayed." in measured.text
    assert lines([measured, plain]) == [None, ("+300 MiB", "600 MiB")]
    assert re.findall(r"In \[\d\]  (\w+\.append)", shown.value) == ["kept.append", "more.append"]


def test_the_cell_in_which_tensorflow_starts_has_a_line(machine: Machine) -> None:
    *_, seen = run(machine, cells, "%tf_gpu track on", "import tensorflow as tf\nx = tf.zeros(100 * 2**18)")

    assert lines([seen]) == [("+100 MiB", "100 MiB")]


@on("1x8GiB")
def test_what_each_cell_did_is_kept_with_its_number_and_its_error() -> None:
    cells(
        READY,
        "%tf_gpu track on",
        "# a comment\nx = tf.zeros(100 * 2**18)",
        "tf.zeros(50 * 2**18); 1 / 0",
        "%%tf_gpu measure\ntf.zeros(20 * 2**18);",
        "tf.zeros(200 * 2**18); get_ipython().run_cell('y = tf.zeros(100 * 2**18)')",
    )

    # The fourth is a cell within the fifth, which counts all.
    found = TIMELINE.cells()[-5:]
    assert [[round(pool.peak / MIB) for pool in one.pools] for one in found] == [[100], [150], [120], [200], [300]]
    assert [(one.cell, one.what, one.error) for one in found[:2]] == [
        (4, "x = tf.zeros(100 * 2**18)", ""),
        (5, "tf.zeros(50 * 2**18); 1 / 0", "ZeroDivisionError"),
    ]
    rows = tfgpu_magic.timeline().frame().to_dict("records")[-5:]  # one for each cell and pool
    assert [(row["cell"], row["error"]) for row in rows[:3]] == [(4, ""), (5, "ZeroDivisionError"), (6, "")]
    assert rows[0]["delta"] == rows[0]["after"] - rows[0]["before"] == 100 * MIB
    assert {(row["framework"], row["pool"]) for row in rows} == {("TensorFlow", "GPU:0")}


@on("1x8GiB")
def test_a_cell_that_is_interrupted_while_it_awaits_is_one_too() -> None:
    """ipykernel has no result for it at its end."""
    cells(READY, "%tf_gpu track on")
    events = InteractiveShell.instance().events
    with capture_output() as heard:
        events.trigger("pre_run_cell", SimpleNamespace(raw_cell="await later()"))
        events.trigger("post_run_cell", None)

    cell = TIMELINE.cells()[-1]
    assert (cell.cell, cell.what, cell.error) == (None, "await later()", "KeyboardInterrupt")
    assert not re.search(r"insight|reporter", heard.stdout + heard.stderr)


def test_the_session_is_shown_as_a_chart_and_by_cell(machine: Machine) -> None:
    *_, seen = run(
        machine,
        cells,
        READY,
        "%tf_gpu track on",
        "x = tf.zeros(100 * 2**18)",
        "1 / 0",
        "tf.zeros(300 * 2**18)[:1].shape",
        "%tf_gpu track",
    )

    assert re.search(r"^GPU 0: 100 MiB in use, highest 400 MiB, limit 2 GiB\n  [▁-█]+$", seen.value, re.MULTILINE)
    rows = re.findall(r"^ (In \[\d\]) +(\S.*?)  +\d+\.\d+ s +GPU:0 +(\d+) MiB +(\S+)", seen.value, re.MULTILINE)
    assert [row[0] for row in rows] == ["In [4]", "In [6]"]
    assert rows[0][1:] == ("x = tf.zeros(100 * 2**18)", "100", "+100")
    assert "Simulated GPUs" in seen.value
    assert "<svg" in seen.html
    assert "In [4], GPU:0 peak 100 MiB: x = tf.zeros(100 * 2**18)" in seen.html


@on("1x8GiB")
def test_without_tracking_the_session_is_there_and_says_what_is_missing() -> None:
    cells(READY, "x = tf.zeros(100 * 2**18)")
    until(lambda: any(level.in_use >= 100 * MIB for one in TIMELINE.samples() for level in one.levels))

    (seen,) = cells("%tf_gpu track")

    assert "GPU 0: 100 MiB in use" in seen.value
    assert "Cells are not tracked." in seen.value


MISTAKES = ("track maybe", "track on --above", "track on --above 5", "track off --above 5MiB", "track --save x")


def test_before_anything_is_used_it_says_so_and_a_mistake_is_refused(machine: Machine) -> None:
    unused, *seen = run(machine, cells, "%tf_gpu track", *(f"%tf_gpu {line}" for line in MISTAKES))

    assert "No framework has used a GPU in this session" in unused.value
    assert [one.error for one in seen] == ["UsageError"] * len(MISTAKES)
