"""`%%tf_gpu measure` and `%tf_gpu measure` in a real IPython: the cell is as any other, and is measured."""

from __future__ import annotations

import re

import pytest

from tests.insight.shell import cells
from tests.machines import machine_of
from tests.magic.shell import Seen
from tests.processes import run
from tfgpu_magic.simgpu import Machine

machine = machine_of("1x8GiB")

READY = "%tf_gpu limit 2GiB\nimport tensorflow as tf; small = tf.zeros(10)"
TAKE = "tf.zeros(64 * 2**18)"  # 64 MiB


def told(machine: Machine, *sources: str) -> list[Seen]:
    """Return what cells gave, after one in which TensorFlow gets ready."""
    seen: list[Seen] = run(machine, cells, READY, *sources)
    return seen[1:]


def value(seen: Seen) -> str:
    """Return the value that a cell shows, which a plain IPython prints."""
    found = re.search(r"^Out\[\d+\]: (.*)$", seen.text, re.MULTILINE)
    return found[1] if found else ""


def test_a_cell_shows_its_peak_what_stayed_and_what_the_driver_gave_beside_its_value(machine: Machine) -> None:
    (seen,) = told(machine, f"%%tf_gpu measure\nx = {TAKE}\nprint('within')\n6 * 7")

    assert re.search(r"^Measured: \d+\.\d+ s, peak 64 MiB, 64 MiB stayed\.$", seen.text, re.MULTILINE)
    assert re.search(r"^ GPU:0 +\d+ \w+ +64 MiB +\+64 MiB +64 MiB +2 GiB$", seen.text, re.MULTILINE)
    assert re.search(r"^ GPU 0 +2\.\d GiB +2\.\d GiB +0$", seen.text, re.MULTILINE)
    assert "Simulated GPUs" in seen.text
    assert value(seen) == "42"
    assert "within\n" in seen.text
    assert seen.html.startswith('<div class="tfgpu">')
    assert "peak 64 MiB, 64 MiB stayed." in seen.html


def test_names_imports_and_magics_of_the_cell_are_the_notebooks(machine: Machine) -> None:
    made, used = told(
        machine, "%%tf_gpu measure\nimport math\n%env\nx = !echo shell\ndef f(): return x", "math.pi, f()[0], _"
    )

    assert not made.error
    assert value(used).startswith("(3.14")
    assert "'shell'" in value(used)


def test_an_error_is_the_cells_own_at_its_line_and_what_it_took_is_shown(machine: Machine) -> None:
    (seen,) = told(machine, f"%%tf_gpu measure\nx = {TAKE}\n\n1 / 0  # here")

    assert seen.error == "ZeroDivisionError"
    assert "ended by ZeroDivisionError, peak 64 MiB" in seen.text
    assert re.search(r"----> 4 1 ?/ ?0  # here", seen.text)
    assert "tfgpu_magic/" not in seen.text.partition("Traceback")[2]


def test_a_cell_may_be_measured_twice_and_its_error_is_its_own(machine: Machine) -> None:
    failed, passed, left = told(
        machine,
        "%%tf_gpu measure\n%tf_gpu measure\n1 / 0",
        "%%tf_gpu measure\n%tf_gpu measure\n6 * 7",
        "'showtraceback' in vars(get_ipython())",
    )

    assert (failed.text.count("Measured:"), failed.text.count("ended by ZeroDivisionError")) == (2, 2)
    assert (passed.text.count("Measured:"), value(passed)) == (2, "42")
    assert "AttributeError" not in failed.text + passed.text
    assert value(left) == "False"


@pytest.mark.parametrize("above", ["", "%%tf_gpu measure\n"])
def test_a_users_own_tracebacks_stay_also_those_that_the_cell_installs(machine: Machine, above: str) -> None:
    _, measured, after = told(
        machine, f"{above}from rich import traceback; traceback.install()", "%%tf_gpu measure\n1 / 0", "1 / 0"
    )

    assert "ended by ZeroDivisionError" in measured.text
    assert ["╭" in one.text for one in (measured, after)] == [True, True]
    assert "run_code" not in after.text  # rich leaves out IPython's frames, if its function is called


def test_what_is_no_error_passes_too_and_nothing_is_measured_any_more(machine: Machine) -> None:
    *ended, wrong, marks = told(
        machine,
        "%%tf_gpu measure\nraise SystemExit",
        "%%tf_gpu measure\nraise KeyboardInterrupt",
        "%%tf_gpu measure\nx = = 1",
        "from tfgpu_magic.frameworks import registry; [len(one._marks) for one in registry.PEAKS.values()]",
    )

    assert [one.error for one in ended] == ["SystemExit", "KeyboardInterrupt"]
    assert all(f"ended by {one.error}" in one.text for one in ended)
    assert (wrong.error, "Measured:" in wrong.text) == ("SyntaxError", False)
    assert value(marks) == "[1, 1, 1]"  # that of the session


def test_cells_and_blocks_nest(machine: Machine) -> None:
    *_, figures, shown = told(
        machine,
        f"import tfgpu_magic\n{TAKE};",
        f"%%tf_gpu measure --as outer\nwith tfgpu_magic.measure() as inner: {TAKE}\ny = tf.zeros(128 * 2**18)",
        "outer.peak // 2**20, inner.peak // 2**20, outer.delta // 2**20, outer.held",
        "outer",
    )

    assert value(figures) == "(128, 64, 128, 0)"
    assert "peak 128 MiB" in shown.text


def test_a_line_measures_the_rest_of_its_cell_and_cells_that_await_or_run_others_are_measured(machine: Machine) -> None:
    seen, after, awaits, runs, silent = told(
        machine,
        f"{TAKE};\n%gpu measure --as m\nx = tf.zeros(32 * 2**18)\nx.shape[0]",
        "m.peak // 2**20",
        "%%tf_gpu measure\nimport asyncio\nz = tf.zeros(128 * 2**18)\nawait asyncio.sleep(0.01)\n6 * 7",
        "%tf_gpu measure\nget_ipython().run_cell('y = 1'); u = tf.zeros(256 * 2**18)",
        "%%tf_gpu measure\n6 * 7;",
    )

    assert "peak 32 MiB, 32 MiB stayed." in seen.text
    assert (value(seen), value(after)) == (str(32 * 2**18), "32")
    assert "128 MiB stayed." in awaits.text
    assert (value(awaits), awaits.error) == ("42", "")
    assert (runs.text.count("Measured:"), silent.text.count("Measured:"), value(silent)) == (1, 1, "")
    assert "256 MiB stayed." in runs.text


def test_a_cell_magic_below_it_is_measured_with_its_cell(machine: Machine) -> None:
    timed, kept, printed = told(
        machine,
        f"%%tf_gpu measure\n\n%%time\nx = {TAKE}",
        f"%%gpu measure\n%%capture kept\nprint('within'); y = {TAKE}",
        "kept.stdout",
    )

    assert ("Wall time" in timed.text, "64 MiB stayed." in timed.text, timed.error) == (True, True, "")
    assert ("64 MiB stayed." in kept.text, kept.error, value(printed)) == (True, "", r"'within\n'")


def test_the_other_words_still_have_names_replaced(machine: Machine) -> None:
    seen: list[Seen] = run(machine, cells, "size = '1GiB'", "%tf_gpu plan limit {size}", "%tf_gpu plan limit $size")

    assert all("`limit 1GiB` would do this" in one.text for one in seen[1:])


MISTAKES = (
    "%tf_gpu measure f(1)",
    "%tf_gpu measure --as 3x",
    "%%tf_gpu measure f()\n1",
    "%%tf_gpu measure --as\n1",
    "%%tf_gpu measure --fit=3\n1",
    "get_ipython().run_cell_magic('tf_gpu', 'measure', '1')",
)


def test_a_mistake_is_refused_and_runs_nothing(machine: Machine) -> None:
    seen = told(machine, *MISTAKES)

    assert [one.error for one in seen] == ["UsageError"] * len(MISTAKES)
    assert not any("Measured:" in one.text for one in seen)
