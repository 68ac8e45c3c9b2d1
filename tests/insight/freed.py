"""What the tests of `%tf_gpu free` run in processes on the simulated machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.magic.shell import cells, shown
from tests.sizes import MIB
from tests.tf.on_machine import held


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


def shown_then(sources: Sequence[str], line: str, more: Sequence[str]) -> list[str]:
    """Run cells, a line, and more cells, and return what these show."""
    return [text.strip() for text in shown("%load_ext tfgpu_magic", *sources, line, *more)[-len(more) :]]


def program() -> tuple[int, int | None, bool]:
    """Let go of a name in a program; return what became free, what went to the driver, and whether it is there."""
    import tensorflow as tf

    import tfgpu_magic

    main: Any = sys.modules["__main__"]
    tfgpu_magic.apply("growth")
    main.x = tf.zeros([256 * MIB // 4])
    freed = tfgpu_magic.free("x")
    return freed.in_pools, freed.to_driver, hasattr(main, "x")
