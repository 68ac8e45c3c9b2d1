"""What the tests of `growth --release` do in processes on the simulated machine, with the real TensorFlow."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import Any

import tfgpu_magic
from tests.sizes import GIB, MIB
from tests.slack import SLACK
from tests.tf.on_machine import held, touch_every_gpu
from tfgpu_magic import control
from tfgpu_magic.config import script
from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.config.runtime import current_stage
from tfgpu_magic.config.self_report import after_exit
from tfgpu_magic.frameworks.tensorflow import TensorFlow
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.views.plan import answer


def zeros(size: int) -> Any:
    import tensorflow as tf

    return tf.zeros(size // 4)


def in_use() -> int:
    import tensorflow as tf

    return int(tf.config.experimental.get_memory_info("GPU:0")["current"])


def uuids() -> list[str]:
    machine = Machine.current()
    assert machine is not None
    return [gpu.uuid for gpu in machine.gpus()]


def up_and_down() -> tuple[list[int], list[int], int, list[int], list[int]]:
    tfgpu_magic.apply("growth --release")
    lives, more = zeros(GIB), zeros(2 * GIB)
    before = held()
    del more
    assert in_use() < 2 * GIB
    freed, gone, after = held(), tfgpu_magic.give_back(), held()
    more = zeros(2 * GIB)
    again = held()
    assert lives is not more
    return before, freed, gone, after, again


def train_five_times() -> list[tuple[int, int, int, int]]:
    import numpy as np
    import tensorflow as tf

    tfgpu_magic.apply("growth --release")
    layers = [tf.keras.Input((64,)), tf.keras.layers.Dense(128, "relu"), tf.keras.layers.Dense(1)]
    model = tf.keras.Sequential(layers)
    model.compile("adam", "mse")
    x, y = np.zeros((256, 64), "float32"), np.zeros(256, "float32")
    rounds = []
    for _ in range(5):
        losses = model.fit(x, y, batch_size=64, epochs=2, verbose=0).history["loss"]
        big = zeros(2 * GIB)
        (up,) = held()
        del big
        tfgpu_magic.give_back()
        (down,) = held()
        rounds.append((up, down, in_use(), len(losses)))
    return rounds


def beside_threads() -> tuple[int, list[int], int]:
    """Give back again and again while threads take and free memory; return how often they did, and what is left."""
    tfgpu_magic.apply("growth --release")
    lives = zeros(GIB)
    over = threading.Event()
    rounds: list[int] = []

    def compute() -> None:
        while not over.is_set():
            more = zeros(16 * MIB)
            rounds.append(more.shape[0])
            del more

    threads = [threading.Thread(target=compute) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(rounds) < 100 and any(thread.is_alive() for thread in threads):
        tfgpu_magic.give_back()
    over.set()
    for thread in threads:
        thread.join()
    tfgpu_magic.give_back()
    assert lives is not None
    return len(rounds), held(), in_use()


def in_a_fork() -> tuple[int, list[int], list[int], int]:
    """Have a forked child give back; return its exit status, what is held before and after, and what then goes back."""
    tfgpu_magic.apply("growth --release")
    more = zeros(GIB)
    del more
    before = held()
    child = os.fork()
    if not child:
        status = 1
        try:
            status = tfgpu_magic.give_back()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), before, held(), tfgpu_magic.give_back()


def by_the_users_own_variable() -> int:
    os.environ["TF_GPU_ALLOCATOR"] = "cuda_malloc_async"
    tfgpu_magic.apply("growth")
    more = zeros(GIB)
    del more
    return tfgpu_magic.give_back()


def on_two_gpus() -> tuple[list[int], list[int], list[int]]:
    import tensorflow as tf

    tfgpu_magic.apply("growth --release")
    kept = []
    for gpu, size in ((0, GIB), (1, 2 * GIB)):
        with tf.device(f"GPU:{gpu}"):
            kept.append(zeros(size))
    before = held()
    kept.clear()
    gone = TensorFlow().give_back()
    return before, [gone[uuid] for uuid in uuids()], held()


def give_back_after(words: str, before: object) -> int:
    if callable(before):
        before()
    tfgpu_magic.apply(words)
    big = zeros(GIB)
    del big
    return tfgpu_magic.give_back()


def refused(*lines: str) -> str:
    for words in lines:
        tfgpu_magic.apply(words)
    big = zeros(GIB)
    del big
    before = held()
    try:
        tfgpu_magic.give_back()
    except tfgpu_magic.Refused as error:
        assert held() == before
        return str(error)
    return ""


def give_back_at_rest(before: object) -> tuple[Stage, Stage, int, list[int]]:
    import tensorflow  # noqa: F401

    tfgpu_magic.apply("growth --release")
    if callable(before):
        before()
    stage = current_stage()
    gone = tfgpu_magic.give_back()
    return stage, current_stage(), gone, held()


def with_a_lost_gpu() -> list[bool]:
    machine = Machine.current()
    assert machine is not None
    tfgpu_magic.apply("growth --release")
    import tensorflow as tf

    kept = []
    for gpu in (0, 1):
        with tf.device(f"GPU:{gpu}"):
            kept.append(zeros(GIB))
    kept.clear()
    machine.lose(0)
    gone = TensorFlow().give_back()
    return [gone.get(uuid, 0) >= GIB for uuid in uuids()]


def run_code() -> tuple[list[int], list[int]]:
    names: dict[str, object] = {}
    exec(script.python(control.sketch("growth --release")), names)
    big = zeros(GIB)
    del big
    before = held()
    give_back = names["give_back"]
    assert callable(give_back)
    give_back()
    return before, held()


def views() -> tuple[str, str, str]:
    shown = repr(answer(tfgpu_magic.apply("growth --release"), ""))
    waiting = repr(tfgpu_magic.status())
    touch_every_gpu()
    return shown, waiting, repr(tfgpu_magic.status())


def figures() -> tuple[int, int, int]:
    tfgpu_magic.apply("growth --release")
    lives, more = zeros(GIB), zeros(2 * GIB)
    del more
    ((current, peak),) = TensorFlow().figures().values()
    tfgpu_magic.give_back()
    assert lives is not None
    return current.size, peak.size, in_use()


def after_a_restart() -> tuple[int, int]:
    """Return what is free after a restart, before and after this has given back; where the driver names no process."""
    tfgpu_magic.apply("growth --release")
    lives, more = zeros(512 * MIB), zeros(2 * GIB)
    del more
    found = []
    for _ in range(2):
        snapshot = replace(tfgpu_magic.look(30 * SLACK), processes=())
        found.append(after_exit(snapshot).gpus[0].free or 0)
        found.append(snapshot.gpus[0].free or 0)
        tfgpu_magic.give_back()
    assert lives is not None
    return found[0] - found[1], found[2] - found[3]


def isolated() -> int:
    return int(tfgpu_magic.isolated(policy="growth --release")(give_back_in_a_call)())


def give_back_in_a_call() -> int:
    big = zeros(GIB)
    del big
    return tfgpu_magic.give_back()
