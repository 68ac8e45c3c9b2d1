"""`%tf_gpu tensors` finds what holds TensorFlow's memory, each by its name, and keeps nothing of it."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import tfgpu_magic
from tests.machines import machine_of
from tests.magic.shell import Seen, cells
from tests.processes import run
from tests.sizes import MIB
from tfgpu_magic.frameworks.tensorflow import arrays as tensorflow_arrays
from tfgpu_magic.insight.objects.accounts import Account, Group
from tfgpu_magic.insight.objects.search import Search
from tfgpu_magic.insight.objects.tensors import Tensors, called, holders, tensors
from tfgpu_magic.simgpu import Machine

machine = machine_of("2x8GiB")

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


def test_a_model_in_training_with_adam_is_accounted_for_by_its_own_names(machine: Machine) -> None:
    looks: list[Found] = run(machine, in_training, MODEL)

    assert len(looks) == 4
    assert min(seen.share for seen in looks) >= ENOUGH
    large = [name for name, size in looks[-1].arrays.items() if size]
    slots = [name for name in large if name.startswith("model.optimizer.variables[")]
    assert sorted(set(large) - set(slots)) == ["model.layers[0].kernel", "model.layers[1].kernel"]
    assert len(slots) == 4


WRITTEN = {
    TRAINED: (18, set()),
    FUNCTIONAL: (4, set()),
    OWN: (7, {"own.first.kernel", "own.blocks[0].kernel", "own.blocks[1].bias", "own.scale"}),
}
"""Models, with how many variables each has at least, and how some are called."""


def test_what_is_written_gives_the_variable(machine: Machine) -> None:
    checked: list[dict[str, bool]] = run(machine, evaluated, [*WRITTEN])

    for (least, names), rights in zip(WRITTEN.values(), checked, strict=True):
        assert len(rights) >= least
        assert names <= rights.keys()
        assert [name for name, right in rights.items() if not right] == []


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


def test_each_is_found_by_the_right_name(machine: Machine) -> None:
    looks: list[Found] = run(machine, found_of_each, [cell for cell, _ in NAMED])

    for (cell, arrays), seen in zip(NAMED, looks, strict=True):
        large = {name: size for name, size in seen.arrays.items() if size}
        assert large, cell
        if arrays is not None:
            assert large == arrays, cell
        if "del x" not in cell:
            assert seen.share >= ENOUGH, cell


def test_what_an_error_keeps_is_found_with_its_function(machine: Machine) -> None:
    cell = f"def train(batch):\n    loss = {zeros(8)}\n    raise ValueError\ntrain([{zeros(4)}])"
    seen: Found = run(machine, found, cell)

    assert {name.partition(";")[0] for name, size in seen.arrays.items() if size} == {
        "loss, in train(), kept by the last error",
        "batch[0], in train(), kept by the last error",
    }
    assert seen.share >= ENOUGH


def test_an_iterator_has_at_most_what_its_buffer_has_room_for(machine: Machine) -> None:
    five, chosen, of_any_size = run(machine, bounds)

    assert five == 5 * (MIB + 256)
    assert chosen == of_any_size == 0  # not known


def test_what_threads_and_modules_have_is_found(machine: Machine) -> None:
    seen: Found = run(machine, in_threads_and_modules)

    assert {name: size for name, size in seen.arrays.items() if size} == {
        "batch[0], in train(), which is running": 8,
        "own_module.CACHE['a']": 4,
    }


def test_the_weights_of_a_model_that_is_gone_are_told_by_what_keeps_them(machine: Machine) -> None:
    seen: Found = run(machine, gone, MODEL)

    assert seen.share >= ENOUGH
    assert set(seen.arrays) == {"captured by a tf.function that no name leads to"}


def test_a_program_without_ipython_has_names_too(machine: Machine) -> None:
    seen: Found = run(machine, in_a_program)

    assert seen.arrays == {"x[0]": 4}


def test_nothing_is_kept_and_no_count_of_references_changes(machine: Machine) -> None:
    before, after, gone, in_use = run(machine, before_and_after)

    assert after == before
    assert gone
    assert in_use < MIB


@pytest.mark.parametrize("imported", ["", "imported"])
def test_no_framework_is_started(machine: Machine, imported: str) -> None:
    text, stage, _ = run(machine, asleep, imported, fresh=True)

    assert "Nothing of this process takes memory of a GPU." in text
    assert "No framework has memory of a GPU in use here." in text
    assert stage == ("IMPORTED" if imported else "ABSENT")


def test_in_an_errors_handler_it_tells_the_largest(machine: Machine) -> None:
    names, error = run(machine, within_an_errors_handler)

    assert error == "ResourceExhaustedError"
    assert names == [f"batches[{number}], in fill(), kept by the last error" for number in (0, 1)]


def test_what_is_shown_has_sizes_devices_and_the_frameworks_figure_and_of_many_the_largest(machine: Machine) -> None:
    cell = f"x = {zeros(64)}\nv = tf.Variable({zeros(2)}, name='v')\ns = tf.zeros([3])"
    many = "xs = [tf.zeros([n + 1]) for n in range(500)]"
    told = [f"%tf_gpu tensors{flag}" for flag in ("", " --all", " 5")]
    _, seen, _, few, every, refused = run(machine, shown, cell, "%tf_gpu tensors", many, *told)

    lines = [line.split() for line in seen.value.splitlines()]
    assert ["x", "64", "MiB", "tensor", "float32", "64×256×1024", "GPU:0"] in lines
    assert ["v", "2", "MiB", "variable", "float32", "2×256×1024", "GPU:0"] in lines
    assert ["s", "256", "B", "tensor", "float32", "3", "GPU:0"] in lines
    assert "TensorFlow has 66 MiB in use on GPU:0." in seen.value
    assert "<td>tensor float32 64×256×1024</td>" in seen.html
    assert seen.html.count("<tr>") == len([line for line in lines if "GPU:0" in line]) + 1
    assert ["xs", "500", "tensors"] in [[*line.split()[:1], *line.split()[3:5]] for line in few.value.splitlines()]
    assert "`%tf_gpu tensors --all` shows each of the 5" in few.value
    assert every.value.count("xs[") == 500
    assert "`tensors 5` cannot be shown. Write `%tf_gpu tensors` or `%tf_gpu tensors --all`." in refused.text
    assert refused.error == "UsageError"


SETUP = "%tf_gpu growth"
TENSORFLOW = "import tensorflow as tf"


@dataclass(frozen=True)
class Found:
    """What an inventory has: each array as it is called and its MiB, and the account of each GPU."""

    arrays: dict[str, int]
    accounts: tuple[Account, ...]

    @property
    def share(self) -> float:
        """The least part of what is in use on a GPU that is accounted for, of those where a MiB or more is in use."""
        return min(one.found / one.in_use for one in self.accounts if one.in_use and one.in_use >= MIB)


def found(*sources: str) -> Found:
    """Run cells, and return what holds memory then."""
    shown(*sources)
    return _found(tensors(everything=True))


def found_of_each(sources: Sequence[str]) -> list[Found]:
    """Run cells, each in a session of its own where the ones before left nothing, and return what holds memory then."""
    return [found(source) for source in _apart(sources)]


def _apart(sources: Sequence[str]) -> Iterator[str]:
    for source in sources:
        InteractiveShell.instance().reset(new_session=True)  # type: ignore[no-untyped-call]  # IPython's
        tfgpu_magic.free()  # of the last error
        yield source


def in_training(model: str) -> list[Found]:
    """Train the model that a cell makes, as TensorFlow is by default, and return what holds memory at each step."""
    import keras
    import numpy as np

    looks: list[Found] = []

    class Look(keras.callbacks.Callback):  # type: ignore[misc]  # mypy does not know it
        def on_train_batch_end(self, *_: object, **__: object) -> None:
            looks.append(_found(tensors(everything=True)))

    cells(TENSORFLOW, model)
    made = InteractiveShell.instance().user_ns["model"]
    made.fit(np.zeros((64, 1024)), np.zeros((64, 10)), batch_size=16, verbose=0, callbacks=[Look()])
    return looks


def gone(model: str) -> Found:
    """Train the model that a cell makes, let go of it, and return what holds memory then."""
    cells(TENSORFLOW, model)
    train = "model.fit(np.zeros((16, 1024)), np.zeros((16, 10)), verbose=0); None"
    cells(train, "del model; keras.utils.clear_session()")
    gc.collect()
    return _found(tensors(everything=True))


def _found(taken: Tensors) -> Found:
    return Found({called(one.name, one.others): one.size >> 20 for one in taken.holdings}, taken.accounts)


def bounds() -> list[int]:
    """Return the bytes that iterators have at most: of five pairs, of as many as TensorFlow likes, of batches."""
    import tensorflow as tf

    cells(SETUP)
    pairs = tf.data.Dataset.range(99).map(lambda _: (tf.zeros([256, 1024]), tf.zeros([10])))
    found = []
    for dataset, number in ((pairs, 5), (pairs, None), (pairs.batch(3), 5)):
        iterator = iter(dataset.apply(tf.data.experimental.prefetch_to_device("GPU:0", number)))
        found += [one.size for one in tensorflow_arrays.arrays([iterator]) if one.rest]
    return found


def evaluated(sources: Sequence[str]) -> list[dict[str, bool]]:
    """Run cells; for each array that a name leads to, return whether the name gives it when it is evaluated."""
    return [_evaluated(source) for source in _apart(sources)]


def _evaluated(source: str) -> dict[str, bool]:
    shown(source)
    names = InteractiveShell.instance().user_ns
    search = Search()
    rows = [Group(members=(one,)) for one in search.buffers]
    checked = {}
    for row, one in zip(rows, search.holdings(rows), strict=True):
        if one.name.inner or one.name.scopes or not one.name.parts:
            continue
        value = eval(one.name.expression, names)
        value = value.value if hasattr(value, "path") else value  # of a variable of Keras
        checked[one.name.expression] = value is search._arrays[row.members[0].arrays[0]][1].thing
    return checked


def shown(*sources: str) -> list[Seen]:
    """Run cells after those that set TensorFlow up, and return what they show."""
    return cells(SETUP, TENSORFLOW, *sources)[2:]


def in_a_program() -> Found:
    """Return what holds memory in a program without IPython."""
    import tensorflow as tf

    main: Any = sys.modules["__main__"]
    main.x = [tf.zeros([1024, 1024])]
    return _found(tensors(everything=True))


def in_threads_and_modules() -> Found:
    """Return what holds memory where a thread and a module of the user's hold some."""
    import tensorflow as tf

    own = ModuleType("own_module")
    own.__file__ = "/home/me/own_module.py"
    own.CACHE = {"a": tf.zeros([1024, 1024])}  # type: ignore[attr-defined]
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
    seen = _found(tensors(everything=True))
    over.set()
    thread.join()
    return seen


def before_and_after() -> tuple[list[int], list[int], bool, int]:
    """Return references to arrays and what leads to them before and after, whether one goes, and what is in use."""
    import tensorflow as tf

    arrays = [tf.zeros([1024, 1024]), tf.Variable(tf.zeros([1024, 1024]))]
    box = {"a": arrays}
    gone = weakref.ref(arrays[0])
    tensors()  # what is made once is made
    before = [sys.getrefcount(one) for one in (*arrays, arrays, box)]
    taken = tensors()
    after = [sys.getrefcount(one) for one in (*arrays, arrays, box)]
    del arrays, box
    assert len(taken.holdings) == 2
    return before, after, gone() is None, tf.config.experimental.get_memory_info("GPU:0")["current"]


def asleep(imported: str) -> tuple[str, str, bool]:
    """Ask where TensorFlow is not imported, or not started; return what is shown, its stage, and if it is imported."""
    from tfgpu_magic.frameworks.tensorflow.devices import current_stage

    seen = cells(*([TENSORFLOW] if imported else []), "%tf_gpu tensors", "%tf_gpu free")
    return seen[-2].text + seen[-1].text, current_stage().name, "tensorflow" in sys.modules


def within_an_errors_handler() -> tuple[list[str], str]:
    """Run out of memory, and return what `holders` says in the error's handler, and the error."""
    import tensorflow as tf

    def fill() -> None:
        batches = []
        for size in (16, 8, 4, 2, 16384):
            batches += [tf.zeros([size, 256, 1024])]

    try:
        fill()
    except tf.errors.ResourceExhaustedError as error:
        return [called(one.name) for one in holders()[0].holdings[:2]], type(error).__name__
    raise AssertionError
