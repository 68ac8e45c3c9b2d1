"""`%tf_gpu free` lets go of what IPython keeps, of names, and of garbage; TensorFlow's own figure is the judge."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.jupyter import execute, serving
from tests.machines import machine_of
from tests.magic.shell import cells, shown
from tests.processes import run
from tests.sizes import CONTEXT, GIB, MIB
from tests.tf.on_machine import held
from tfgpu_magic.simgpu import Machine

machine = machine_of("1x8GiB")

BIG = "tf.zeros([64, 1024, 1024])"  # 256 MiB
IN_USE = "print(tf.config.experimental.get_memory_info('GPU:0')['current'])"


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


def test_each_leak_is_freed_by_tensorflows_figure(machine: Machine) -> None:
    gone: list[Gone] = run(machine, after_each, LEAKS)

    for leak, one in zip(LEAKS, gone, strict=True):
        assert one.before >= 256 * MIB, leak
        assert one.after < MIB, leak
        assert "256 MiB became free" in one.text, leak
        assert "Nothing went back to the driver" in one.text, leak


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


def test_gradients_of_what_lives_are_found_as_before(machine: Machine) -> None:
    sources = [
        "import tensorflow as tf",
        "@tf.custom_gradient\ndef tripled(x):\n    return 2.0 * x, lambda dy: 3.0 * dy",
        "@tf.function\ndef inner(x):\n    return tripled(x)",
        "@tf.function\ndef f(x):\n    return tf.cond(x > 0.0, lambda: inner(x), lambda: tripled(x))",
        CALLED + SLOPE,
        "called(f); called(inner)",
    ]
    seen = run(
        machine,
        shown_then,
        sources,
        "%tf_gpu free",
        ["print(slope(f))", "del f", "%tf_gpu free", "print(slope(inner))"],
    )

    assert (seen[0], seen[-1]) == ("3.0", "3.0")


def test_a_notebooks_kernel_lets_go_of_each_too(machine: Machine, tmp_path: Path) -> None:
    leaks = [
        [f"def train():\n    x = {BIG}\n    raise ValueError", "train()"],
        ["train()", "%tb"],
        [BIG],
        [f"x = {BIG}", "x", "del x; Out.clear()"],
        [f"x = {BIG}", "x", "del x", "%reset -f out"],
        [f"a = [{BIG}]; a.append(a); del a"],
    ]
    with serving(machine, tmp_path) as server:
        client = server.connect(server.call("kernels", {"name": "python3"})["id"])
        execute(client, "%load_ext tfgpu_magic\n%tf_gpu growth\nimport gc, tensorflow as tf; gc.disable()")
        found = []
        for cells in leaks:
            told = [execute(client, cell) for cell in (*cells, IN_USE, "%tf_gpu free", IN_USE)]
            found.append((int(told[-3]), int(told[-1])))
        client.stop_channels()

    assert [(before >= 256 * MIB, after < MIB) for before, after in found] == [(True, True)] * len(leaks)


def test_under_growth_release_the_driver_has_all_but_what_lives_each_of_five_times_and_training_goes_on(
    machine: Machine,
) -> None:
    rounds: list[Round] = run(machine, train_and_free_five_times)

    assert len(rounds) == 5
    for one in rounds:
        assert one.trained.endswith(": 2\n")  # epochs
        assert one.up - CONTEXT > 2 * GIB
        assert 0 <= one.down - CONTEXT - one.lives < 2 * MIB  # each tensor takes whole pages
        assert 0 < one.lives < 64 * MIB
        assert "TensorFlow on GPU:0: 2 GiB became free" in one.text
        assert "2 GiB of GPU 0 went back to the driver, and this process still holds" in one.text
        assert "TensorFlow keeps" not in one.text


@pytest.mark.parametrize("trouble", ["host_pids", "hide_memory"])
def test_where_the_driver_does_not_tell_what_is_held_tensorflow_tells_what_went_back(trouble: str) -> None:
    with Machine.create("8GiB") as machine:
        getattr(machine, trouble)()
        gone: Gone = run(machine, after, [f"x = {BIG}"], "%tf_gpu free x", "growth --release")

    assert "TensorFlow gave 256 MiB back to the driver, which does not tell what this process holds." in gone.text


KEPT = [
    ([f"x = {BIG}", "x"], "", "nothing became free, and 256 MiB are in use"),
    (
        ["z = [x]", "y = {'a': z}", "del x", "z"],
        "z",
        "`z`: 256 MiB of what was there is kept by other names: y['a'][0]; also Out[",
    ),
    (["del y", f"{MODEL}; n = m"], "m", "is kept by other names: n.layers[0].kernel"),
]


def test_what_has_a_name_stays_and_what_another_name_keeps_is_told(machine: Machine) -> None:
    gone: list[Gone] = run(machine, after_each, [(sources, names) for sources, names, _ in KEPT])

    for (_, _, told), one in zip(KEPT, gone, strict=True):
        assert one.after >= 256 * MIB
        assert told in one.text
    assert "`%tf_gpu tensors` shows what holds the rest." in gone[0].text


UNKNOWN = {
    "modle": "there is no name 'modle' here to delete. Did you mean 'model'?",
    "model nothing_like_it": "there is no name 'nothing_like_it' here to delete.",
    "Out": "there is no name 'Out' here to delete.",
}


def test_an_unknown_name_is_refused_and_nothing_is_let_go_of(machine: Machine) -> None:
    setup: tuple[list[str], str] = ([f"model = {BIG}", BIG], "modle")
    gone: list[Gone] = run(machine, after_each, [setup, *(([], names) for names in UNKNOWN)])

    for told, one in zip(UNKNOWN.values(), gone[1:], strict=True):
        assert told in one.text
        assert "UsageError" in one.text
        assert one.after == one.before >= 512 * MIB


def test_the_users_own_underscore_all_other_names_and_a_model_that_is_half_built_stay(machine: Machine) -> None:
    half = "import keras\ni = keras.Input((4,)); y = keras.layers.Dense(4)(i)"
    finished = "len(keras.Model(i, keras.layers.Dense(4)(y)).layers)"
    texts = run(machine, shown_then, ["_ = 5", "__ = 6", "7", "x = 8", half], "%tf_gpu free", ["(_, __, x)", finished])

    assert texts == ["Out[8]: (5, 6, 8)", "Out[9]: 3"]


def test_results_and_an_error_by_which_nothing_becomes_free_stay_and_results_go_on(machine: Machine) -> None:
    setup = [f"import tensorflow as tf; x = {BIG}", "(7, x)[:2]", f"[{BIG}]", "8", "raise ValueError(x)"]
    left = ["(_, __, ___ is _3, _3[0], sorted(Out))", "9", "_ + 1", "import sys; sys.last_value.args[0] is x"]
    (told, *texts) = run(machine, shown_then, setup, "%tf_gpu free", left, 1)

    assert "Dropped: Out[4]." in told
    assert texts == ["Out[8]: (8, '', True, 7, [3, 5])", "Out[9]: 9", "Out[10]: 10", "Out[11]: True"]


def test_a_program_without_ipython_can_let_go_of_its_names(machine: Machine) -> None:
    in_pools, to_driver, there, without_names = run(machine, program)

    assert (in_pools, to_driver, there) == (256 * MIB, 0, False)
    assert "`y`: 1 KiB of what was there is still kept: no name leads to it." in without_names
    assert "more objects than were looked through" in without_names


@dataclass(frozen=True)
class Gone:
    """What TensorFlow has in use before a line and after it, and what the line showed."""

    before: int
    after: int
    text: str


@dataclass(frozen=True)
class Round:
    """What training showed, what the driver says is held before a line and after it, and what is in use then.

    The last is what the line showed.
    """

    trained: str
    up: int
    down: int
    lives: int
    text: str


def in_use() -> int:
    """Return the bytes that TensorFlow has in use."""
    import tensorflow as tf

    return int(tf.config.experimental.get_memory_info("GPU:0")["current"])


def after(sources: Sequence[str], line: str, policy: str = "growth") -> Gone:
    """Run cells under a policy, then a line, and tell what became of the memory."""
    cells(f"%tf_gpu {policy}", "import tensorflow as tf")
    gc.disable()  # or garbage may go before the line does
    return _gone(sources, line)


def after_each(leaks: Sequence[tuple[Sequence[str], str]]) -> list[Gone]:
    """Run each leak's cells, and free the names that are said, one after the other in one notebook."""
    cells("%tf_gpu growth", "import tensorflow as tf")
    gc.disable()
    return [_gone(sources, f"%tf_gpu free {names}") for sources, names in leaks]


def _gone(sources: Sequence[str], line: str) -> Gone:
    shown(*sources)
    before = in_use()
    (text,) = shown(line)
    return Gone(before, in_use(), text)


def train_and_free_five_times() -> list[Round]:
    """Under `growth --release`, train, take 2 GiB more and let go of them, five times, all in one notebook."""
    shown(
        "%load_ext tfgpu_magic",
        "%tf_gpu growth --release",
        "import numpy as np, tensorflow as tf",
        "layers = [tf.keras.Input((64,)), tf.keras.layers.Dense(128, 'relu'), tf.keras.layers.Dense(1)]",
        "model = tf.keras.Sequential(layers); model.compile('adam', 'mse')",
        "x, y = np.zeros((256, 64), 'float32'), np.zeros(256, 'float32')",
    )
    rounds = []
    for _ in range(5):
        fit = "len(model.fit(x, y, epochs=2, verbose=0).history['loss'])"
        trained, *_ = shown(fit, "big = tf.zeros([2, 2**28])", "iter([big])")  # which IPython keeps, too
        (up,) = held()
        (text,) = shown("%tf_gpu free big")
        (down,) = held()
        rounds.append(Round(trained, up, down, in_use(), text))
    return rounds


def shown_then(sources: Sequence[str], line: str, more: Sequence[str], before: int = 0) -> list[str]:
    """Run cells, a line, and more cells, and return what these show, and so many before them."""
    return [text.strip() for text in shown("%load_ext tfgpu_magic", *sources, line, *more)[-len(more) - before :]]


def program() -> tuple[int, int | None, bool, str]:
    """Let go of a name in a program; return what became free, what went to the driver, and whether it is there.

    The last is what is told of another name where there are more objects than are looked through.
    """
    import tensorflow as tf

    import tfgpu_magic
    from tfgpu_magic.insight.objects import walk

    main: Any = sys.modules["__main__"]
    tfgpu_magic.apply("growth")
    main.x = tf.zeros([256 * MIB // 4])
    freed = tfgpu_magic.free("x")
    kept = [[tf.zeros([256])]]
    main.y = kept[0][0]
    walk.MOST = 1
    told = repr(tfgpu_magic.free("y"))
    del kept
    return freed.in_pools, freed.to_driver, hasattr(main, "x"), told
