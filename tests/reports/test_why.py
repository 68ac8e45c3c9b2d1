"""What people have reported of `%tf_gpu why` and `measure --fit`: what is named, what is advised, and what it does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import waiting
from tests.magic.cells import IMPORT, NOT, Cells, Play, playing
from tests.processes import PATIENCE
from tests.sizes import GIB
from tests.slack import SLACK

PATIENT = (
    "from tfgpu_magic.insight.why import explaining\n"
    f"explaining.LOOK_TIMEOUT = explaining.TRIAL_TIMEOUT = {20.0 * SLACK}"
)
ONE_GIB = PATIENT, "%tf_gpu limit 1GiB"
START = f"{IMPORT}; x = tf.zeros(3)"


@pytest.fixture(scope="module")
def play() -> Iterator[Play]:
    with playing("1x8GiB") as (play, _):
        yield play


def out(*shape: int) -> str:
    """Return a line that raises what TensorFlow raises: to run out of memory for real takes ten seconds."""
    text = (
        f"OOM when allocating tensor with shape{list(shape)} and type float on "
        "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc"
    ).replace(", ", ",")
    return f"raise tf.errors.ResourceExhaustedError(None, None, {text!r})"


def explained(play: Play, *cells: str, **env: str) -> str:
    """Run cells, and return what stands below the last one's error."""
    *_, failed = Cells(*cells, env=env).play(play)
    return failed[failed.index("Out of GPU memory") :]


LEAK = [
    f"{IMPORT}\nweights = tf.Variable(tf.zeros((1024, 2048)))\nkept = []",
    f"def train(steps):\n    for _ in range(steps): kept.append(tf.zeros((1024, 1024)))\n    {out(1024, 2048)}",
]


def test_use_2_the_leak_is_named_as_tensors_names_it_and_is_let_go_of(play: Play) -> None:
    lines = "train(253)", "%tf_gpu tensors", "%tf_gpu free kept"
    *_, told, tensors, freed = Cells(*ONE_GIB, *LEAK, *lines).play(play)

    assert re.search(r"^ *kept +1012 MiB +253 tensors", tensors, re.MULTILINE)
    assert re.search(r"Largest +1012 MiB +kept \(253 tensors\)", told)
    assert "  %tf_gpu free kept   " in told
    assert "%tf_gpu tensors" in told
    assert "smaller" not in told[told.index("Out of GPU memory") :]  # no batch changes a weight's gradient
    assert "MiB became free, and 8 MiB are still in use" in freed


@pytest.mark.parametrize(
    "odd",
    [
        "def make():\n    try:\n        1 / 0\n    except ArithmeticError as e:\n        return lambda: e\nodd=make()",
        "class Odd:\n    def __getattribute__(self, name):\n        raise KeyError(name)\nodd = Odd()",
    ],
    ids=["a function whose error is gone", "an object that refuses to be looked at"],
)
def test_whatever_a_cell_reads_its_error_is_explained(play: Play, odd: str) -> None:
    assert explained(play, *ONE_GIB, f"{START}\n{odd}", f"kept = odd\n{out(128, 2**20)}")


@pytest.mark.parametrize(
    ("cell", "advised"),
    [
        (out(512, 1024, 1024), True),
        (out(2**29), False),
        (out(1, 2**29), False),
        (f"def add_weight():\n    {out(64, 2**23)}\nadd_weight()", False),  # of a layer that is being built
    ],
)
def test_a_smaller_batch_is_advised_where_one_was_asked_for(play: Play, cell: str, advised: bool) -> None:
    assert ("A smaller batch" in explained(play, *ONE_GIB, START, cell)) == advised


LAST = f"{IMPORT}; kept = tuple(tf.zeros((1024, 2**10)) for _ in range(230))"


@pytest.mark.parametrize(("line", "frees"), [("also = kept", False), ("show = lambda: also(kept)", True)])
def test_a_name_is_let_go_of_where_that_frees_what_is_missing(play: Play, line: str, frees: bool) -> None:
    assert ("%tf_gpu free kept" in explained(play, *ONE_GIB, f"{LAST}; {line}", out(128, 1024, 1024))) == frees


READ = {
    "a function of TensorFlow's": "step = tf.function(lambda: kept)",
    "a function that remembers": "import functools\n@functools.cache\ndef step(): return kept",
    "a part of a function": "import functools; step = functools.partial(lambda x: kept, 1)",
    "an object": "class Step:\n    def __call__(self): return kept\nstep = Step()",
    "an object that pickles itself": (
        "class Step:\n    def __call__(self): return kept\n    def __reduce__(self): return Step, ()\nstep = Step()"
    ),
    "a function after what cannot be sent": "def use(): return kept\nstep = [(n for n in range(3)), use]",
}


@pytest.mark.parametrize("line", READ.values(), ids=READ)
def test_no_name_is_let_go_of_without_which_the_cell_could_not_run(play: Play, line: str) -> None:
    assert "free kept" not in explained(play, *ONE_GIB, f"{LAST}\n{line}", f"step\n{out(128, 1024, 1024)}")


UNSENT = {
    "a dataset": "ds = tf.data.Dataset.range(3)",
    "an iterator": "ds = iter(tf.data.Dataset.range(3))",
    "a generator": "ds = (n for n in range(3))",
    "a lock": "import threading; ds = [threading.Lock()]",
    "a lock in a queue": "import collections, threading; ds = collections.deque([threading.Lock()])",
    "in an object": "class Data: pass\nds = Data(); ds.source = (n for n in range(3))",
    "a dataset of a dictionary": "ds = {'train': tf.data.Dataset.range(3)}",
}
SENT = {
    "a number": "ds = 3",
    "an array": "import numpy; ds = numpy.zeros(3)",
    "a tensor": "ds = tf.zeros(3)",
    "a variable": "ds = tf.Variable(tf.zeros(3))",
    "a model": "import keras; ds = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])",
    "an object": "class Data: pass\nds = Data(); ds.source = [1, 2]",
    "a function": "def ds(): return tf.zeros(3)",
    "a module": "import numpy as ds",
}
USE = f"def train():\n    ds\n    {out(512, 1024, 1024)}"


@pytest.mark.parametrize("line", UNSENT.values(), ids=UNSENT)
def test_use_3_no_isolated_cell_is_advised_that_would_be_refused(play: Play, line: str) -> None:
    Cells(
        *(*ONE_GIB, START, f"{line}\n{USE}"),
        ("train()", NOT + "isolate", "%tf_gpu limit 3.1GiB"),
        ("%%tf_gpu isolate growth\ntrain()", "cannot be sent to another process"),
    ).play(play)


@pytest.mark.parametrize("line", SENT.values(), ids=SENT)
def test_an_isolated_cell_is_advised_where_its_names_can_be_sent(play: Play, line: str) -> None:
    assert "%%tf_gpu isolate growth" in explained(play, *ONE_GIB, START, f"{line}\n{USE}", "train()")


WORKER = """
import subprocess, sys
code = "import torch; x = torch.zeros(5 * 2**30, 'cuda:0'); print(flush=True); input()"
pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
worker = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(STAND_IN)}, **pipes)
worker.stdout.readline()
"""


def test_frameworks_7_memory_that_workers_hold_is_said_to_be_this_notebooks_and_nothing_is_restarted_for_it() -> None:
    apply, executor, run = 'tfgpu_magic.apply("limit 25%")', "tfgpu_magic.IsolatedExecutor", "!tfgpu run"
    whose = "5.2 GiB  this session's python", "this session's own worker processes"
    with playing("2x8GiB") as (play, _):
        Cells(
            *(PATIENT, "%tf_gpu growth", f"{START}{WORKER}"),
            (out(768, 1024, 1024), *whose, apply, executor, run, NOT + "--restart"),
            "worker.communicate(b'')",
        ).play(play)


def test_a_limit_that_a_neighbour_has_shrunk_is_explained_by_the_neighbour(tmp_path: Path) -> None:
    ready, there = tmp_path / "ready", tmp_path / "there"
    wait = (
        f"from tests import waiting; from pathlib import Path; Path({str(ready)!r}).touch()\n"
        f"waiting.until(Path({str(there)!r}).exists, seconds={PATIENCE})"
    )
    with playing("1x8GiB") as (play, machine), ThreadPoolExecutor() as pool:

        def come() -> None:
            waiting.until(ready.exists, seconds=PATIENCE)
            machine.add_neighbour("5.5GiB@0")
            there.touch()

        pool.submit(come)
        use = "x = tf.zeros((25, 2**20)); print(mib())"
        *_, held, told = Cells(
            PATIENT, "%tf_gpu limit 4GiB", IMPORT, wait, use, (out(640, 1024, 1024), NOT + "in one piece")
        ).play(play)
    (mib,) = map(int, re.findall(r"\[(\d+)\]", held))

    assert mib < 2500
    assert re.search(r"Out of GPU memory.* 2\.5 GiB could not be had.* 5\.5 GiB are held by", told)


def test_a_part_that_is_not_used_yet_has_not_been_shrunk() -> None:
    begin = f"{IMPORT}; x = tf.zeros((1024, 1024)); mib()"
    add = "from tfgpu_magic.simgpu import Machine; Machine.current().add_neighbour('6.2GiB@0')"
    with playing("1x8GiB") as (play, _):
        assert "could not" not in explained(play, PATIENT, "%tf_gpu split 1GiB 1GiB", begin, add, out(128, 2**20))


def test_use_6_an_answer_under_a_ceiling_says_that_the_ceiling_limits(play: Play) -> None:
    failed = explained(play, PATIENT, START, out(512, 1024, 1024), TFGPU_CEILING="limit 6%")
    own = explained(play, *ONE_GIB, START, out(512, 1024, 1024), TFGPU_CEILING="limit 60%")

    assert "which is limited to 491 MiB by the ceiling `limit 6%`, from $TFGPU_CEILING, with" in failed
    assert "ceiling" not in own


CLOCK = """
import time; real, late = time.perf_counter, [0]
time.perf_counter = lambda: real() + late[0]
class Slow(Exception):
    def _render_traceback_(self):
        late[0] += 1000
        return ['Slow']
"""


def test_the_time_of_a_cell_that_fails_is_without_its_traceback(play: Play) -> None:
    Cells(CLOCK, "%%tf_gpu measure --as m\nraise Slow", ("print(m.seconds < 1000, m.error)", "True Slow")).play(play)


TAKE = "def take(*mib): return [tf.zeros((size, 2**18)) for size in mib]"
FITTED = {
    "concat": "x = tf.zeros([64, 2**18])\nfor _ in range(6): x = tf.concat([x, x[:64]], 0)",
    "concat in a function": (
        "def grow():\n    x = tf.zeros([64, 2**18])\n    for _ in range(6): x = tf.concat([x, x[:64]], 0)\ngrow()"
    ),
    "doubling": "x = tf.zeros([16, 2**18])\nfor _ in range(5): x = tf.concat([x, x], 0)",
    "every second is let go of": "x = take(*range(1, 40)); del x[::2]; y = take(60, 70)",
    "one large array": "x = take(700)",
    "large and small in turns": "x = []\nfor n in range(8): x += take(50, 3)\ndel x[::2]; y = take(120, 130)",
    "a queue": "x = take(90, 90, 90)\nfor n in range(9): x = x[1:] + take(90 + 5 * n)",
    "a window that grows": "x = take(10)\nfor n in range(20): x = [*take(10 + 8 * n), x[0]]",
    "training": (
        "w = [tf.Variable(tf.zeros((64, 2**18))) for _ in range(3)]\n"
        "for _ in range(4):\n    with tf.GradientTape() as tape: y = tf.add_n([v * v for v in w])\n"
        "    for v, g in zip(w, tape.gradient(y, w)): v.assign_sub(g)"
    ),
    "batches of many sizes": "for n in (30, 60, 45, 90, 15, 75, 105): x = take(n); y = x[0] * 2.0 + x[0]",
    "results that are kept": "kept = []\nfor n in range(20):\n    x = take(40)[0]; kept.append(x[:8] + 1.0)",
}


@pytest.mark.parametrize("cell", FITTED.values(), ids=FITTED)
def test_the_same_cell_runs_under_the_limit_that_is_advised(play: Play, cell: str) -> None:
    start = f"{IMPORT}\n{TAKE}"
    fit = "%tf_gpu measure --fit", "Run it once under this limit"
    *_, advised = Cells(PATIENT, "%tf_gpu limit 6GiB", start, cell, fit).play(play)
    found = re.search(r"^  %tf_gpu (.+)$", advised, re.MULTILINE)
    assert found is not None, advised
    again = f"{cell}\nprint('it', 'ran')", "it ran\n"
    *_, held = Cells(PATIENT, f"%tf_gpu {found[1]}", start, again, "mib()").play(play)

    assert int(re.findall(r"\d+", held)[0]) < 2 * GIB / 2**20
