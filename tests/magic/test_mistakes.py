"""Mistakes in a line of `%tf_gpu` are told in a sentence, on a simulated machine, and stop the run."""

from __future__ import annotations

import pytest

from tests.magic.shell import Seen, each
from tests.processes import run
from tfgpu_magic.simgpu import Machine

MISTAKES = [
    ("grwoth", "Did you mean 'growth'?"),
    ("statsu", "Did you mean 'status'?"),
    ("growth; status", "`status` is no policy: it stands alone"),
    ("plan isolate", "`isolate` is no policy: it stands alone"),
    ("memory", "`%tf_gpu status`"),
    ("code watch", "The live table is `%tf_gpu top`."),
    ("limit", "A limit of how much?"),
    ("limit 2GiB --gorw", "Did you mean '--grow'?"),
    ("limit 7=1GiB", "There is no GPU 7 here; there are GPUs 0 and 1."),
    ("limit 100GiB", "more than the 8 GiB it has"),
    ("plan limit 100GiB", "more than the 8 GiB it has"),
    ("pick 3", "3 GPUs cannot be had now; 2 can."),
    ("jobs --restart", "`jobs` sets nothing, so --restart has no place beside it."),
    ("status now", "`status` stands alone; 'now' is too much."),
    ("top --restart", "`top` sets nothing"),
    ("--restart", "--restart of what?"),
    ("4gib", "'4gib' is not a word of %tf_gpu. For a limit, write `%tf_gpu limit 4gib`."),
    ("growth; free", "`free` is no policy: it stands alone"),
    ("release", "'release' is not a word of %tf_gpu. `%tf_gpu free` lets go of what nobody needs"),
    ("growth; gc", "'gc' is not a word of %tf_gpu. `%tf_gpu free` lets go of what nobody needs"),
    *((line, "would undo") for line in ("growth; limit 2GiB", "limit 2GiB; growth", "visible 0; pick")),
    ("limit 0=1GiB; limit 1GiB", "would undo"),
]
"""Lines, each with what it is told."""


@pytest.fixture(scope="module")
def seen() -> dict[str, Seen]:
    """What each line gives: one process for all of them, as none sets anything."""
    with Machine.create("2x8GiB") as machine:
        found: dict[str, Seen] = run(machine, each, [f"%tf_gpu {line}" for line, _ in MISTAKES])
    return found


@pytest.mark.parametrize(("line", "told"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_is_told_in_a_sentence_without_a_traceback_and_stops_the_run(
    seen: dict[str, Seen], line: str, told: str
) -> None:
    one = seen[f"%tf_gpu {line}"]

    assert told in one.text
    assert "Traceback" not in one.text
    assert one.error == "UsageError"
