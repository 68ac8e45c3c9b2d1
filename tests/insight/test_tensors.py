"""`%tf_gpu tensors` finds what holds TensorFlow's memory, each by its name, and keeps nothing of it."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import tfgpu_magic
from tests.magic.shell import cells
from tests.processes import on
from tests.sizes import MIB
from tests.tf.on_machine import in_use
from tfgpu_magic.frameworks.tensorflow import arrays as tensorflow_arrays
from tfgpu_magic.frameworks.tensorflow.devices import current_stage
from tfgpu_magic.insight.objects.accounts import Account
from tfgpu_magic.insight.objects.search import arrays_reached_from, search
from tfgpu_magic.insight.objects.tensors import name_text, tensors
from tfgpu_magic.policy.process_state import Stage

ENOUGH = 0.95
"""The part of what TensorFlow has in use that is accounted for at least."""

MODEL = """
import keras, numpy as np
layers = keras.layers
model = keras.Sequential([keras.Input((1024,)), layers.Dense(2048), layers.Dense(1024), layers.Dense(10)])
model.compile("adam", "mse")
"""
TRAINED = f"{MODEL}\nhistory = model.fit(np.zeros((64, 1024)), np.zeros((64, 10)), verbose=0)"
READING = "@tf.function\ndef f():\n    return v + 1\ng = f.get_concrete_function()"
DENSE = "import keras\nmodel = keras.Sequential([keras.Input((1024,)), keras.layers.Dense(1024)])"
FUNCTIONAL = """
import keras
seen = keras.Input((512,))
inner = keras.layers.Dense(512, name="inner")
told = keras.layers.Dense(1024)(inner(seen))
model = keras.Model(seen, told)
del seen, told, inner
"""
OWN = """
import keras

class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.first = keras.layers.Dense(512)
        self.blocks = [keras.layers.Dense(256), keras.layers.Dense(128)]
        self.scale = self.add_weight(shape=(1024,), name="scale")

    def call(self, x):
        for layer in (self.first, *self.blocks):
            x = layer(x)
        return x

own = Own()
own(keras.ops.zeros((1, 1024))); None
"""
PREFETCHED = """
from tests.waiting import until
ds = tf.data.Dataset.range(9).map(lambda _: tf.zeros([4, 256, 1024]))
it = iter(ds.apply(tf.data.experimental.prefetch_to_device("GPU:0", 2)))
first = next(it)
until(lambda: tf.config.experimental.get_memory_info("GPU:0")["current"] >= 12 * 2**20); None
"""


def zeros(mebibytes: int) -> str:
    return f"tf.zeros([{mebibytes}, 256, 1024])"


SETUP = ("%tf_gpu growth", "import tensorflow as tf")


@dataclass(frozen=True)
class Found:
    """What an inventory has: each array as it is called and its MiB, and the account of each GPU."""

    arrays: dict[str, int]
    accounts: tuple[Account, ...]

    @property
    def large(self) -> dict[str, int]:
        """The arrays of a MiB or more."""
        return {name: size for name, size in self.arrays.items() if size}

    @property
    def share(self) -> float:
        """The least part of what is in use on a GPU that is accounted for, of those where a MiB or more is in use."""
        return min(one.found / one.in_use for one in self.accounts if one.in_use and one.in_use >= MIB)


def found(*sources: str) -> Found:
    """Run cells, and return what holds memory then."""
    if sources:
        cells(*SETUP, *sources)
    taken = tensors(everything=True)
    return Found({name_text(one.name, one.others): one.size >> 20 for one in taken.holdings}, taken.accounts)


def apart(sources: Iterable[str]) -> Iterator[str]:
    """Give sources, each in a session of its own where the ones before left nothing."""
    for source in sources:
        InteractiveShell.instance().reset(new_session=True)  # type: ignore[no-untyped-call]  # IPython's
        tfgpu_magic.free()  # of the last error
        yield source


@on("2x8GiB")
def test_a_model_in_training_with_adam_is_accounted_for_by_its_own_names() -> None:
    import keras
    import numpy as np

    looks: list[Found] = []

    class Look(keras.callbacks.Callback):  # type: ignore[misc]  # mypy does not know it
        def on_train_batch_end(self, *_: object, **__: object) -> None:
            looks.append(found())

    cells("import tensorflow as tf", MODEL)
    made = InteractiveShell.instance().user_ns["model"]
    made.fit(np.zeros((64, 1024)), np.zeros((64, 10)), batch_size=16, verbose=0, callbacks=[Look()])

    assert [seen.share >= ENOUGH for seen in looks] == [True] * 4
    slots = {name for name in looks[-1].large if name.startswith("model.optimizer.variables[")}
    assert looks[-1].large.keys() - slots == {"model.layers[0].kernel", "model.layers[1].kernel"}
    assert len(slots) == 4


WRITTEN = {
    TRAINED: (18, set()),
    FUNCTIONAL: (4, set()),
    OWN: (7, {"own.first.kernel", "own.blocks[0].kernel", "own.blocks[1].bias", "own.scale"}),
}
"""Models, with how many variables each has at least, and how some are called."""


@on("2x8GiB")
def test_what_is_written_gives_the_variable() -> None:
    for source in apart(WRITTEN):
        least, names = WRITTEN[source]
        cells(*SETUP, source)

        rights = evaluated()

        assert len(rights) >= least
        assert names <= rights.keys()
        assert [name for name, right in rights.items() if not right] == []


def evaluated() -> dict[str, bool]:
    """Return for each array that a name leads to whether the name gives it when it is evaluated."""
    names, rights = InteractiveShell.instance().user_ns, {}
    for row in search(everything=True).rows:
        if not (row.name.inner or row.name.within) and row.name.parts:
            reached, _ = arrays_reached_from([eval(row.name.expression, names)])
            rights[row.name.expression] = [one.name for one in search(only=reached).rows] == [row.name]
    return rights


NAMED: list[tuple[str, dict[str, int] | None]] = [
    (f"x = {zeros(4)}", {"x": 4}),
    (f"x = tf.Variable({zeros(4)})", {"x": 4}),
    (f"x = {{'a': [0, ({zeros(4)},)]}}", {"x['a'][1][0]": 4}),
    (f"class Box: pass\nbox = Box(); box.x = {zeros(4)}; Box.y = {zeros(8)}", {"box.x": 4, "Box.y": 8}),
    (f"def f(x=None):\n    x = {zeros(4)}\n    return lambda: x\ng = f()", {"x, closed over by g": 4}),
    (
        f"def f():\n    x = [{zeros(4)}]\n    yield 1\n    del x\ng = f(); next(g); None",
        {"x[0], in the generator g": 4},
    ),
    (f"{zeros(4)}", {"Out[4]": 4}),
    (f"x = {zeros(8)}\nrow = x[2:4]\nflat = tf.reshape(x, [-1])", {"x; also flat; row": 8}),
    (f"x = {zeros(8)}\nrow = x[2:4]\ndel x", {"row": 2}),
    (f"x = {zeros(8)}\nxs = [x[n:] for n in range(8)]", {"x; also xs[0]; xs[1]; xs[2]; xs[3]": 8}),
    (f"x = {zeros(8)}\nv = tf.Variable(x)", {"v": 8, "x": 8}),
    (f"v = tf.Variable({zeros(8)})\nx = v.read_value()", {"v": 8, "x": 8}),
    (f"with tf.device('CPU:0'):\n    x = {zeros(8)}\ny = {zeros(4)}", {"y": 4}),
    (f"with tf.device('GPU:1'):\n    x = {zeros(8)}", {"x": 8}),
    (
        f"class M(tf.Module): pass\nm = M(); m.parts = [{zeros(4)}]; m.by = {{'a': {zeros(8)}}}",
        {"m.parts[0]": 4, "m.by['a']": 8},
    ),
    (f"v = tf.Variable({zeros(4)})\n{READING}\ndel v, f", {"g (inside)": 4}),
    (f"{DENSE}\nw = model.layers[0].kernel", {"w; also model.layers[0].kernel": 4}),
    (f"x = {zeros(4)}\n@tf.function\ndef f():\n    return x\nf(); y = x\ndel x", None),
    (PREFETCHED, {"first": 4, "it": 8}),
]


@on("2x8GiB")
def test_each_is_found_by_the_right_name() -> None:
    names = dict(NAMED)
    for cell in apart(names):
        seen = found(cell)

        assert seen.large, cell
        assert names[cell] in (seen.large, None), cell
        assert seen.share >= ENOUGH or "del x" in cell, cell


@on("2x8GiB")
def test_what_an_error_keeps_is_found_with_its_function() -> None:
    seen = found(f"def train(batch):\n    loss = {zeros(8)}\n    raise ValueError\ntrain([{zeros(4)}])")

    assert {name.partition(";")[0] for name in seen.large} == {
        "loss, in train(), kept by the last error",
        "batch[0], in train(), kept by the last error",
    }
    assert seen.share >= ENOUGH


@on("2x8GiB")
def test_an_iterator_has_at_most_what_its_buffer_has_room_for() -> None:
    import tensorflow as tf

    cells(*SETUP)
    pairs = tf.data.Dataset.range(99).map(lambda _: (tf.zeros([256, 1024]), tf.zeros([10])))

    def most(dataset: Any, number: int | None) -> int:
        iterator = iter(dataset.apply(tf.data.experimental.prefetch_to_device("GPU:0", number)))
        return next(one.size for one in tensorflow_arrays.arrays([iterator]) if one.rest)

    assert most(pairs, 5) == 5 * (MIB + 256)
    assert most(pairs, None) == most(pairs.batch(3), 5) == 0  # not known


@on("2x8GiB")
def test_what_threads_and_modules_have_is_found() -> None:
    import tensorflow as tf

    own: Any = ModuleType("own_module")
    own.__file__ = "/home/me/own_module.py"
    own.CACHE = {"a": tf.zeros([1024, 1024])}
    sys.modules["own_module"] = own
    begun, over = threading.Event(), threading.Event()

    def train() -> None:
        batch = [tf.zeros([2, 1024, 1024])]
        begun.set()
        over.wait()
        del batch

    thread = threading.Thread(target=train)
    thread.start()
    begun.wait()
    seen = found()
    over.set()
    thread.join()

    assert seen.large == {"batch[0], in train(), which is running": 8, "own_module.CACHE['a']": 4}


@on("2x8GiB")
def test_the_weights_of_a_model_that_is_gone_are_told_by_what_keeps_them() -> None:
    train = "model.fit(np.zeros((16, 1024)), np.zeros((16, 10)), verbose=0); None"
    cells("import tensorflow as tf", MODEL)
    cells(train, "del model; keras.utils.clear_session()")
    gc.collect()

    seen = found()

    assert seen.share >= ENOUGH
    assert set(seen.arrays) == {"captured by a tf.function that no name leads to"}


@on("2x8GiB")
def test_a_program_without_ipython_has_names_too() -> None:
    import tensorflow as tf

    main: Any = sys.modules["__main__"]
    main.x = [tf.zeros([1024, 1024])]

    assert found().arrays == {"x[0]": 4}


@on("2x8GiB")
def test_nothing_is_kept_and_no_count_of_references_changes() -> None:
    import tensorflow as tf

    arrays = [tf.zeros([1024, 1024]), tf.Variable(tf.zeros([1024, 1024]))]
    box = {"a": arrays}
    gone = weakref.ref(arrays[0])
    tensors()  # what is made once is made
    before = [sys.getrefcount(one) for one in (*arrays, arrays, box)]

    taken = tensors()

    after = [sys.getrefcount(one) for one in (*arrays, arrays, box)]
    assert after == before
    assert len(taken.holdings) == 2
    del arrays, box
    assert gone() is None
    assert in_use() < MIB


@pytest.mark.parametrize(("imported", "stage"), [("pass", Stage.ABSENT), ("import tensorflow", Stage.IMPORTED)])
@on("2x8GiB", imported=False)
def test_no_framework_is_started(imported: str, stage: Stage) -> None:
    _, told, freed = cells(imported, "%tf_gpu tensors", "%tf_gpu free")

    assert "Nothing of this process takes memory of a GPU." in told.text
    assert "No framework has memory of a GPU in use here." in freed.text
    assert current_stage() is stage


@on("2x8GiB")
def test_in_an_errors_handler_it_tells_the_largest() -> None:
    import tensorflow as tf

    def fill() -> None:
        batches = []
        for size in (16, 8, 4, 2, 16384):
            batches += [tf.zeros([size, 256, 1024])]

    try:
        fill()
    except tf.errors.ResourceExhaustedError:
        names = [name_text(one.name) for one in tensors().holdings[:2]]

    assert names == [f"batches[{number}], in fill(), kept by the last error" for number in (0, 1)]


@on("2x8GiB")
def test_what_is_shown_has_sizes_devices_and_the_frameworks_figure_and_of_many_the_largest() -> None:
    cell = f"x = {zeros(64)}\nv = tf.Variable({zeros(2)}, name='v')\ns = tf.zeros([3])"
    many = "xs = [tf.zeros([n + 1]) for n in range(500)]"
    told = [f"%tf_gpu tensors{flag}" for flag in ("", " --all", " 5")]

    _, seen, _, few, every, refused = cells(*SETUP, cell, "%tf_gpu tensors", many, *told)[2:]

    lines = [line.split() for line in seen.value.splitlines()]
    assert ["x", "64", "MiB", "tensor", "float32", "64×256×1024", "GPU:0"] in lines
    assert ["v", "2", "MiB", "variable", "float32", "2×256×1024", "GPU:0"] in lines
    assert ["s", "256", "B", "tensor", "float32", "3", "GPU:0"] in lines
    assert "TensorFlow has 66 MiB in use on GPU:0." in seen.value
    assert "<td>tensor float32 64×256×1024</td>" in seen.html
    assert seen.html.count("<tr>") == len([line for line in lines if "GPU:0" in line]) + 1
    assert ["xs", "500", "tensors"] in [[*line.split()[:1], *line.split()[3:5]] for line in few.value.splitlines()]
    assert every.value.count("xs[") == 500
    assert refused.error == "UsageError"
