"""`%tf_gpu free` lets go of what IPython keeps, of names, and of garbage; TensorFlow's own figure is the judge."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tfgpu_magic
from tests.jupyter import execute, serving
from tests.magic.shell import cells, shown
from tests.processes import on
from tests.sizes import CONTEXT, GIB, MIB
from tests.tf.on_machine import held, here, in_use, zeros
from tfgpu_magic.insight.objects import walk
from tfgpu_magic.simgpu import Machine

BIG = "tf.zeros([64, 1024, 1024])"  # 256 MiB
IN_USE = "print(tf.config.experimental.get_memory_info('GPU:0')['current'])"


@dataclass(frozen=True)
class Gone:
    """What TensorFlow has in use before a line and after it, and what the line showed."""

    before: int
    after: int
    text: str


def begin(policy: str = "growth") -> None:
    """Load the extension and TensorFlow; garbage stays, or it may go before a line does."""
    cells(f"%tf_gpu {policy}", "import tensorflow as tf")
    gc.disable()


def freed(sources: Sequence[str], names: str) -> Gone:
    """Run cells, and free these names."""
    shown(*sources)
    before = in_use()
    (text,) = shown(f"%tf_gpu free {names}")
    return Gone(before, in_use(), text)


MODEL = "import keras, numpy as np\nm = keras.Sequential([keras.Input((8192,)), keras.layers.Dense(8192)])"
TRAINED = f"""
{MODEL}
m.compile("sgd", "mse")
m.fit(np.zeros((8, 8192), "f"), np.zeros((8, 8192), "f"), verbose=0);
"""
LEAKS = [
    ([f"x = {BIG}", "x", "del x"], ""),
    ([BIG, "1", "2", "3"], ""),
    ([f"x = {BIG}", "_ = x", "x", "del x, _"], ""),
    ([f"x = {BIG}"], "x"),
    ([f"x = {BIG}", "x", "y = [1]"], "x, y"),
    ([f"class A: pass\na = A(); a.me = a; a.x = {BIG}; del a"], ""),
    ([f"@tf.function\ndef f():\n    return x\nx = {BIG}\nf()"], "f x"),
    ([f"{MODEL}; m.compile()"], "m"),
    ([TRAINED], "m"),
]
"""Cells, and the names that are freed; more of what IPython keeps is in a real kernel below."""


@on("1x8GiB")
def test_each_leak_is_freed_by_tensorflows_figure() -> None:
    begin()
    for sources, names in LEAKS:
        gone = freed(sources, names)

        assert gone.before >= 256 * MIB, sources
        assert gone.after < MIB, sources
        assert "256 MiB became free" in gone.text, sources
        assert "Nothing went back to the driver" in gone.text, sources


CALLED = """
def called(f, x=1.0):
    with tf.device("CPU"):  # which computes
        return f(tf.constant(x))
"""
SLOPE = """
def slope(f):
    with tf.device("CPU"):
        x = tf.constant(1.0)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return float(tape.gradient(y, x))
"""


@on("1x8GiB")
def test_gradients_of_what_lives_are_found_as_before() -> None:
    begin()
    shown(
        "@tf.custom_gradient\ndef tripled(x):\n    return 2.0 * x, lambda dy: 3.0 * dy",
        "@tf.function\ndef inner(x):\n    return tripled(x)",
        "@tf.function\ndef f(x):\n    return tf.cond(x > 0.0, lambda: inner(x), lambda: tripled(x))",
        CALLED + SLOPE,
        "called(f); called(inner)",
    )

    _, slope, *_, of_inner = shown("%tf_gpu free", "print(slope(f))", "del f", "%tf_gpu free", "print(slope(inner))")

    assert (slope, of_inner) == ("3.0\n", "3.0\n")


def test_a_notebooks_kernel_lets_go_of_each_too(tmp_path: Path) -> None:
    leaks = [
        [f"def train():\n    x = {BIG}\n    raise ValueError", "train()"],
        ["train()", "%tb"],
        [BIG],
        [f"x = {BIG}", "x", "del x; Out.clear()"],
        [f"x = {BIG}", "x", "del x", "%reset -f out"],
        [f"a = [{BIG}]; a.append(a); del a"],
    ]
    with Machine.create("1x8GiB") as machine, serving(machine, tmp_path) as server:
        client = server.connect(server.call("kernels", {"name": "python3"})["id"])
        execute(client, "%load_ext tfgpu_magic\n%tf_gpu growth\nimport gc, tensorflow as tf; gc.disable()")
        found = []
        for cells in leaks:
            told = [execute(client, cell) for cell in (*cells, IN_USE, "%tf_gpu free", IN_USE)]
            found.append((int(told[-3]), int(told[-1])))
        client.stop_channels()

    assert [(before >= 256 * MIB, after < MIB) for before, after in found] == [(True, True)] * len(leaks)


@on("1x8GiB")
def test_under_growth_release_the_driver_has_all_but_what_lives_each_of_five_times_and_training_goes_on() -> None:
    begin("growth --release")
    shown(
        "import numpy as np",
        "layers = [tf.keras.Input((64,)), tf.keras.layers.Dense(128, 'relu'), tf.keras.layers.Dense(1)]",
        "model = tf.keras.Sequential(layers); model.compile('adam', 'mse')",
        "x, y = np.zeros((256, 64), 'float32'), np.zeros(256, 'float32')",
    )
    for _ in range(5):
        fit = "len(model.fit(x, y, epochs=2, verbose=0).history['loss'])"
        trained, *_ = shown(fit, "big = tf.zeros([2, 2**28])", "iter([big])")  # which IPython keeps, too
        (up,) = held()

        (text,) = shown("%tf_gpu free big")

        (down,) = held()
        assert trained.endswith(": 2\n")  # epochs
        assert up - CONTEXT > 2 * GIB
        assert 0 <= down - CONTEXT - in_use() < 2 * MIB  # each tensor takes whole pages
        assert 0 < in_use() < 64 * MIB
        assert "TensorFlow on GPU:0: 2 GiB became free" in text
        assert "2 GiB of GPU 0 went back to the driver, and this process still holds" in text
        assert "TensorFlow keeps" not in text


@pytest.mark.parametrize("trouble", ["host_pids", "hide_memory"])
@on("8GiB")
def test_where_the_driver_does_not_tell_what_is_held_tensorflow_tells_what_went_back(trouble: str) -> None:
    getattr(here(), trouble)()
    begin("growth --release")

    assert "TensorFlow gave 256 MiB back to the driver, which does not tell" in freed([f"x = {BIG}"], "x").text


LAST = [
    ([f"x = {BIG}", "x"], "", "nothing became free, and 256 MiB are in use"),
    (
        ["z = [x]", "y = {'a': z}", "del x", "z"],
        "z",
        "`z`: 256 MiB of what was there is kept by other names: y['a'][0]; also Out[",
    ),
    (["del y", f"{MODEL}; n = m"], "m", "is kept by other names: n.layers[0].kernel"),
]


@on("1x8GiB")
def test_what_has_a_name_stays_and_what_another_name_keeps_is_told() -> None:
    begin()
    for sources, names, told in LAST:
        gone = freed(sources, names)

        assert gone.after >= 256 * MIB, sources
        assert told in gone.text


UNKNOWN = {
    "modle": "there is no name 'modle' here to delete. Did you mean 'model'?",
    "model nothing_like_it": "there is no name 'nothing_like_it' here to delete.",
    "Out": "there is no name 'Out' here to delete.",
}


@on("1x8GiB")
def test_an_unknown_name_is_refused_and_nothing_is_let_go_of() -> None:
    begin()
    shown(f"model = {BIG}", BIG)
    for names, told in UNKNOWN.items():
        gone = freed([], names)

        assert told in gone.text
        assert "UsageError" in gone.text
        assert gone.after == gone.before >= 512 * MIB


@on("1x8GiB")
def test_the_users_own_underscore_all_other_names_and_a_model_that_is_half_built_stay() -> None:
    half = "import keras\ni = keras.Input((4,)); y = keras.layers.Dense(4)(i)"
    cells("_ = 5", "__ = 6", "7", "x = 8", half, "%tf_gpu free")

    left = shown("(_, __, x)", "len(keras.Model(i, keras.layers.Dense(4)(y)).layers)")

    assert left == ["Out[8]: (5, 6, 8)\n", "Out[9]: 3\n"]


@on("1x8GiB")
def test_results_and_an_error_by_which_nothing_becomes_free_stay_and_results_go_on() -> None:
    cells(f"import tensorflow as tf; x = {BIG}", "(7, x)[:2]", f"[{BIG}]", "8", "raise ValueError(x)")

    told, *left = shown(
        "%tf_gpu free",
        "(_, __, ___ is _3, _3[0], sorted(Out))",
        "9",
        "_ + 1",
        "import sys; sys.last_value.args[0] is x",
    )

    assert "Dropped: Out[4]." in told
    assert left == ["Out[8]: (8, '', True, 7, [3, 5])\n", "Out[9]: 9\n", "Out[10]: 10\n", "Out[11]: True\n"]


@on("1x8GiB")
def test_a_program_without_ipython_can_let_go_of_its_names() -> None:
    main: Any = sys.modules["__main__"]
    tfgpu_magic.apply("growth")
    main.x = zeros(256 * MIB)

    gone = tfgpu_magic.free("x")

    assert (gone.in_pools, gone.to_driver, hasattr(main, "x")) == (256 * MIB, 0, False)
    kept = [[zeros(1024)]]
    main.y = kept[0][0]
    walk.MOST = 1
    told = repr(tfgpu_magic.free("y"))
    assert "`y`: 1 KiB of what was there is still kept: no name leads to it." in told
    assert "more objects than were looked through" in told
