"""What people have reported of `%tf_gpu why` and `measure --fit`: what is named, what is advised, and what it does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import waiting
from tests.frameworks.cells_on_machine import stage
from tests.processes import PATIENCE
from tests.sizes import GIB
from tests.slack import SLACK
from tfgpu_magic.simgpu import Machine

Play = Callable[[Mapping[str, str], list[str]], list[str]]

PATIENT = (
    "%load_ext tfgpu_magic\n"
    "from tfgpu_magic.insight.why import explaining\n"
    f"explaining.LOOK_TIMEOUT = explaining.TRIAL_TIMEOUT = {20.0 * SLACK}"
)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with Machine.create("1x8GiB") as one:
        yield one


@pytest.fixture(scope="module")
def play(machine: Machine) -> Iterator[Play]:
    with stage(machine, again=True) as playing:
        yield playing


def out(*shape: int) -> str:
    """Return a line that raises what TensorFlow raises: to run out of memory for real takes ten seconds."""
    text = (
        f"OOM when allocating tensor with shape{list(shape)} and type float on "
        "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc"
    ).replace(", ", ",")
    return f"raise tf.errors.ResourceExhaustedError(None, None, {text!r})"


def explained(shown: str) -> str:
    """Return what stands below a cell's error."""
    return shown[shown.index("Out of GPU memory") :]


LEAK = [
    "import tensorflow as tf\nweights = tf.Variable(tf.zeros((1024, 2048)))\nkept = []",
    "def train(steps):\n    for _ in range(steps): kept.append(tf.zeros((1024, 1024)))\n    " + out(1024, 2048),
]


def test_use_2_the_leak_is_named_as_tensors_names_it_and_is_let_go_of(play: Play) -> None:
    *_, failed, tensors, freed = play(
        {}, [PATIENT, "%tf_gpu limit 1GiB", *LEAK, "train(253)", "%tf_gpu tensors", "%tf_gpu free kept"]
    )
    told = explained(failed)

    assert re.search(r"^ *kept +1012 MiB +253 tensors", tensors, re.MULTILINE)
    assert re.search(r"Largest +1012 MiB +kept \(253 tensors\)", told)
    assert "  %tf_gpu free kept   " in told
    assert "`%tf_gpu tensors` shows all" in told
    assert "MiB became free, and 8 MiB are still in use" in freed


STRANGE = {
    "a function whose error is gone": (
        "def make():\n    try:\n        1 / 0\n    except ArithmeticError as e:\n        return lambda: e\nodd=make()"
    ),
    "an object that refuses to be looked at": (
        "class Odd:\n    def __getattribute__(self, name):\n        raise KeyError(name)\nodd = Odd()"
    ),
}


@pytest.mark.parametrize("what", STRANGE)
def test_whatever_a_cell_reads_its_error_is_explained(play: Play, what: str) -> None:
    *_, failed = play(
        {},
        [
            PATIENT,
            "%tf_gpu limit 1GiB",
            f"import tensorflow as tf; tf.zeros(3)\n{STRANGE[what]}",
            f"kept = odd\n{out(128, 2**20)}",
        ],
    )

    assert "Out of GPU memory" in failed


def test_use_2_no_batch_changes_the_size_of_a_weights_gradient(play: Play) -> None:
    *_, failed = play({}, [PATIENT, "%tf_gpu limit 1GiB", *LEAK, "train(253)"])

    assert "smaller" not in explained(failed)


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
    *_, failed = play({}, [PATIENT, "%tf_gpu limit 1GiB", "import tensorflow as tf; x = tf.zeros(3)", cell])

    assert ("A smaller batch" in explained(failed)) == advised


@pytest.mark.parametrize(
    ("name", "loses"),
    [
        ("kept = [tf.zeros((1024, 2**10)) for _ in range(230)]; also = kept", "kept"),
        ("kept = [tf.zeros((1024, 2**10)) for _ in range(230)]; show = lambda: also(kept)", ""),
    ],
)
def test_a_name_is_let_go_of_where_that_frees_what_is_missing(play: Play, name: str, loses: str) -> None:
    *_, failed = play({}, [PATIENT, "%tf_gpu limit 1GiB", f"import tensorflow as tf; {name}", out(128, 1024, 1024)])

    assert ("%tf_gpu free kept" in explained(failed)) == (not loses)


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


@pytest.mark.parametrize("what", READ)
def test_no_name_is_let_go_of_without_which_the_cell_could_not_run(play: Play, what: str) -> None:
    start = f"import tensorflow as tf; kept = tuple(tf.zeros((1024, 2**10)) for _ in range(230))\n{READ[what]}"
    *_, failed = play({}, [PATIENT, "%tf_gpu limit 1GiB", start, f"step\n{out(128, 1024, 1024)}"])

    assert "free kept" not in explained(failed)


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


@pytest.mark.parametrize("what", UNSENT)
def test_use_3_no_isolated_cell_is_advised_that_would_be_refused(play: Play, what: str) -> None:
    start = "import tensorflow as tf; x = tf.zeros(3)"
    *_, failed, refused = play(
        {},
        [PATIENT, "%tf_gpu limit 1GiB", start, f"{UNSENT[what]}\n{USE}", "train()", "%%tf_gpu isolate growth\ntrain()"],
    )

    assert "cannot be sent to another process" in refused
    assert "isolate" not in explained(failed)
    assert "%tf_gpu limit 3.1GiB" in explained(failed)


@pytest.mark.parametrize("what", SENT)
def test_an_isolated_cell_is_advised_where_its_names_can_be_sent(play: Play, what: str) -> None:
    start = "import tensorflow as tf; x = tf.zeros(3)"
    *_, failed = play({}, [PATIENT, "%tf_gpu limit 1GiB", start, f"{SENT[what]}\n{USE}", "train()"])

    assert "%%tf_gpu isolate growth" in explained(failed)


WORKER = """
import subprocess, sys
code = "import torch; x = torch.zeros(5 * 2**30, 'cuda:0'); print(flush=True); input()"
pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
worker = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(STAND_IN)}, **pipes)
worker.stdout.readline()
"""


def test_frameworks_7_memory_that_workers_hold_is_said_to_be_this_notebooks_and_nothing_is_restarted_for_it() -> None:
    with Machine.create("2x8GiB") as two, stage(two, again=True) as play:
        *_, failed, _ = play(
            {},
            [
                PATIENT,
                "%tf_gpu growth",
                f"import tensorflow as tf; x = tf.zeros(3){WORKER}",
                out(768, 1024, 1024),
                "worker.communicate(b'')",
            ],
        )
    told = explained(failed)

    assert "5.2 GiB  this session's python" in told
    assert "this session's own worker processes" in told
    assert "--restart" not in told
    for way in ('tfgpu_magic.apply("limit 25%")', "tfgpu_magic.IsolatedExecutor", "!tfgpu run"):
        assert way in told


def test_a_limit_that_a_neighbour_has_shrunk_is_explained_by_the_neighbour(tmp_path: Path) -> None:
    ready, there = tmp_path / "ready", tmp_path / "there"

    wait = (
        f"from tests import waiting; from pathlib import Path; Path({str(ready)!r}).touch()\n"
        f"waiting.until(Path({str(there)!r}).exists, seconds={PATIENCE})"
    )

    def come() -> None:
        waiting.until(ready.exists, seconds=PATIENCE)
        one.add_neighbour("5.5GiB@0")
        there.touch()

    with Machine.create("1x8GiB") as one, stage(one, again=True) as play, ThreadPoolExecutor() as pool:
        pool.submit(come)
        *_, held, failed = play(
            {},
            [
                PATIENT,
                "%tf_gpu limit 4GiB",
                "import tensorflow as tf",
                wait,
                "x = tf.zeros((25, 2**20)); print(mib())",
                out(640, 1024, 1024),
            ],
        )
    (mib,) = map(int, re.findall(r"\[(\d+)\]", held))
    told = explained(failed)

    assert mib < 2500
    assert "2.5 GiB could not be had" in told.splitlines()[0]
    assert "5.5 GiB are held by" in told.splitlines()[0]
    assert "in one piece" not in told


def test_a_part_that_is_not_used_yet_has_not_been_shrunk() -> None:
    begin = "import tensorflow as tf; x = tf.zeros((1024, 1024)); mib()"
    add = "from tfgpu_magic.simgpu import Machine; Machine.current().add_neighbour('6.2GiB@0')"
    with Machine.create("1x8GiB") as machine, stage(machine, again=True) as play:
        *_, failed = play({}, [PATIENT, "%tf_gpu split 1GiB 1GiB", begin, add, out(128, 2**20)])

    assert "could not be had" not in explained(failed)


def test_use_6_an_answer_under_a_ceiling_says_that_the_ceiling_limits(play: Play) -> None:
    start = "import tensorflow as tf; x = tf.zeros(3)"
    *_, failed = play({"TFGPU_CEILING": "limit 6%"}, [PATIENT, start, out(512, 1024, 1024)])
    *_, own = play({"TFGPU_CEILING": "limit 60%"}, [PATIENT, "%tf_gpu limit 1GiB", start, out(512, 1024, 1024)])

    assert "which is limited to 491 MiB by the ceiling `limit 6%`" in explained(failed)
    assert "ceiling" not in explained(own)


def test_the_time_of_a_cell_that_fails_is_without_its_traceback(play: Play) -> None:
    clock = (
        "import time; real, late = time.perf_counter, [0]\n"
        "time.perf_counter = lambda: real() + late[0]\n"
        "class Slow(Exception):\n"
        "    def _render_traceback_(self):\n"
        "        late[0] += 1000\n"
        "        return ['Slow']\n"
    )
    *_, failed = play({}, [PATIENT, clock, "%%tf_gpu measure --as m\nraise Slow", "print(m.seconds < 1000, m.error)"])

    assert failed.strip() == "True Slow"


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


@pytest.mark.parametrize("what", FITTED)
@pytest.mark.parametrize("words", ["limit 6GiB"])
def test_the_same_cell_runs_under_the_limit_that_is_advised(play: Play, what: str, words: str) -> None:
    start = f"import tensorflow as tf\n{TAKE}"
    *_, fit = play({}, [PATIENT, f"%tf_gpu {words}", start, FITTED[what], "%tf_gpu measure --fit"])
    found = re.search(r"^  %tf_gpu (.+)$", fit, re.MULTILINE)
    assert found is not None, fit
    *_, again, held = play({}, [PATIENT, f"%tf_gpu {found[1]}", start, f"{FITTED[what]}\nprint('it', 'ran')", "mib()"])

    assert again.endswith("it ran\n"), (fit, again)
    assert int(re.findall(r"\d+", held)[0]) < 2 * GIB / 2**20
    assert "Run it once under this limit" in fit
