"""Mistakes in a line of `%tf_gpu` are told in a sentence, on a simulated machine, and stop the run."""

from __future__ import annotations

import pytest

from tests.magic.shell import Seen, last
from tests.processes import run
from tfgpu_magic.simgpu import Machine


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("grwoth", "Did you mean 'growth'?"),
        ("statsu", "Did you mean 'status'?"),
        ("growth; status", "`status` is no policy: it stands alone"),
        ("plan isolate", "`isolate` is no policy: it stands alone"),
        ("memory", "`%tf_gpu status`"),
        ("code watch", "The live table is `%tf_gpu top`."),
        ("limit", "A limit of how much?"),
        ("limit 2048", "2048MiB, as TensorFlow counts, or 2048GiB"),
        ("limit 0.4", "40% (of the GPU), or 0.4GiB"),
        ("limit 2GiB --gorw", "Did you mean '--grow'?"),
        ("limit 7=1GiB", "There is no GPU 7 here; there are GPUs 0 and 1."),
        ("limit 100GiB", "more than the 8 GiB it has"),
        ("plan limit 100GiB", "more than the 8 GiB it has"),
        ("code limit", "A limit of how much?"),
        ("pick 3", "3 GPUs cannot be had now; 2 can."),
        ("visible 0,0", "named twice"),
    ],
)
def test_a_mistake_is_told_in_a_sentence_without_a_traceback_and_stops_the_run(line: str, told: str) -> None:
    with Machine.create("2x8GiB") as machine:
        seen: Seen = run(machine, last, f"%tf_gpu {line}")

    assert told in seen.text
    assert "Traceback" not in seen.text
    assert seen.error == "UsageError"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("jobs --restart", "`jobs` sets nothing, so --restart has no place beside it."),
        ("status now", "`status` stands alone; 'now' is too much."),
        ("top --restart", "`top` sets nothing"),
        ("--restart", "--restart of what?"),
        ("4gib", "'4gib' is not a word of %tf_gpu. For a limit, write `%tf_gpu limit 4gib`."),
        ("4GiB", "'4GiB' is not a word"),
        ("growth; free", "`free` is no policy: it stands alone"),
        ("release", "'release' is not a word of %tf_gpu. `%tf_gpu free` lets go of what nobody needs"),
        ("growth; gc", "'gc' is not a word of %tf_gpu. `%tf_gpu free` lets go of what nobody needs"),
    ],
)
def test_what_stands_alone_is_said_to(line: str, told: str) -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, last, f"%tf_gpu {line}")

    assert told in seen.text
    assert seen.error == "UsageError"


@pytest.mark.parametrize(
    "line", ["growth; limit 2GiB", "limit 2GiB; growth", "visible 0; pick", "limit 0=1GiB; limit 1GiB"]
)
def test_words_of_one_line_that_undo_each_other_are_refused(line: str) -> None:
    with Machine.create("2x8GiB") as machine:
        seen: Seen = run(machine, last, f"%tf_gpu {line}")

    assert "would undo" in seen.text
