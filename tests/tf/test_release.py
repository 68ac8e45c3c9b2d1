"""Under `growth --release` the real TensorFlow's memory goes back to the driver, whose account is the judge."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

import tfgpu_magic
from tests.processes import run
from tests.sizes import CONTEXT, GIB, LITTLE, MIB
from tests.slack import SLACK
from tests.tf.on_machine import held, touch_every_gpu
from tests.tf.test_calls import listed
from tfgpu_magic.engine import engine
from tfgpu_magic.engine.engine import answer
from tfgpu_magic.frameworks.self_report import after_exit
from tfgpu_magic.frameworks.tensorflow.devices import current_stage
from tfgpu_magic.frameworks.tensorflow.framework import TensorFlow
from tfgpu_magic.policy import script
from tfgpu_magic.policy.process_state import Stage
from tfgpu_magic.simgpu import Machine

SOME = 64 * MIB
"""More than a small model in training has beside its context."""


def test_what_is_freed_stays_held_until_it_is_given_back_and_what_lives_stays() -> None:
    with Machine.create("8GiB") as machine:
        before, freed, figures, gone, after, again = run(machine, up_and_down)
    current, peak, then = figures

    assert before[0] - CONTEXT in range(3 * GIB, 3 * GIB + SOME)
    assert freed == before  # TensorFlow's own figure fell, and the driver's did not
    assert gone == before[0] - after[0]
    assert after[0] - CONTEXT in range(GIB, GIB + SOME)
    assert again == before
    assert current in range(GIB, GIB + SOME)  # TensorFlow's own figures
    assert peak in range(3 * GIB, 3 * GIB + SOME)
    assert then == current  # giving back moves nothing that lives


def test_five_times_up_and_down_and_training_goes_on() -> None:
    with Machine.create("8GiB") as machine:
        rounds = run(machine, train_five_times)

    assert len(rounds) == 5
    for up, down, lives, epochs in rounds:
        assert up - CONTEXT > 2 * GIB
        assert 0 <= down - CONTEXT - lives < 2 * MIB  # each tensor takes whole pages
        assert 0 < lives < SOME
        assert epochs == 2


def test_threads_that_compute_may_go_on_meanwhile() -> None:
    with Machine.create("8GiB") as machine:
        rounds, left, in_use = run(machine, beside_threads)

    assert rounds >= 100
    assert 0 <= left[0] - CONTEXT - in_use < 2 * MIB
    assert in_use in range(GIB, GIB + SOME)


def test_a_forked_child_gives_back_nothing_and_takes_nothing_from_its_parent() -> None:
    with Machine.create("8GiB") as machine:
        status, before, after, gone = run(machine, in_a_fork)

    assert (status, before) == (0, after)
    assert gone >= GIB


def test_the_users_own_variable_is_enough() -> None:
    with Machine.create("8GiB") as machine:
        assert run(machine, by_the_users_own_variable) >= GIB


def test_each_gpu_gives_back_its_own() -> None:
    with Machine.create("2x8GiB") as machine:
        before, gone, after = run(machine, on_two_gpus)

    assert [size - CONTEXT >= want for size, want in zip(before, (GIB, 2 * GIB), strict=True)] == [True, True]
    assert [before[0] - after[0], before[1] - after[1]] == gone
    assert [size in LITTLE for size in after] == [True, True]


@pytest.mark.parametrize(
    ("words", "before"),
    [
        ("growth --release", None),
        ("visible 1; growth --release", listed),
        ("growth --release; split 2 --cpu", listed),
    ],
)
def test_it_is_in_force_wherever_tensorflow_has_come_before_its_first_op(words: str, before: object) -> None:
    with Machine.create("2x8GiB") as machine:
        gone = run(machine, give_back_after, words, before)

    assert gone >= GIB


def test_where_it_was_not_asked_for_it_is_refused_and_nothing_is_given_back() -> None:
    with Machine.create("8GiB") as machine:
        text = run(machine, refused, "growth")

    assert "Traceback" not in text
    assert "TensorFlow gives back what it does not use where `growth --release` was said before its first" in text


@pytest.mark.parametrize("before", [None, listed])
def test_giving_back_starts_nothing(before: object) -> None:
    with Machine.create("8GiB") as machine:
        stage, after, gone, sizes = run(machine, give_back_at_rest, before)

    assert (after, gone, sizes) == (stage, 0, [0])
    assert stage is (Stage.IMPORTED if before is None else Stage.LISTED)


def test_a_gpu_that_is_lost_hinders_no_other() -> None:
    with Machine.create("2x8GiB") as machine:
        assert run(machine, with_a_lost_gpu) == [False, True]


def test_code_gives_back_without_tfgpu_magic() -> None:
    with Machine.create("8GiB") as machine:
        before, after = run(machine, run_code)

    assert before[0] - CONTEXT >= GIB
    assert after[0] in LITTLE


def test_every_view_says_it() -> None:
    with Machine.create("8GiB") as machine:
        plan, waiting, in_force = run(machine, views)

    assert "growth, gives back" in plan
    assert "growth, gives back" in waiting
    assert "growth, gives back" in in_force
    assert "In force: `growth --release`." in in_force


def test_what_a_restart_gives_back_is_what_is_held_by_then() -> None:
    with Machine.create("8GiB") as machine:
        machine.add_neighbour("4GiB@0")
        before, after = run(machine, after_a_restart)

    assert before - after in range(2 * GIB, 2 * GIB + SOME)


def test_an_isolated_call_has_it() -> None:
    with Machine.create("8GiB") as machine:
        gone = run(machine, isolated)

    assert gone >= GIB


# --- what runs in a process on the machine ---


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


def up_and_down() -> tuple[list[int], list[int], tuple[int, int, int], int, list[int], list[int]]:
    tfgpu_magic.apply("growth --release")
    lives, more = zeros(GIB), zeros(2 * GIB)
    before = held()
    del more
    assert in_use() < 2 * GIB
    ((current, peak),) = TensorFlow().figures().values()
    freed, gone, after = held(), tfgpu_magic.give_back(), held()
    figures = current.size, peak.size, in_use()
    more = zeros(2 * GIB)
    again = held()
    assert lives is not more
    return before, freed, figures, gone, after, again


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
    exec(script.python(engine.sketch("growth --release")), names)
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


def after_a_restart() -> tuple[int, int]:
    """Return what is free after a restart, before and after this has given back; where the driver names no process."""
    tfgpu_magic.apply("growth --release")
    lives, more = zeros(512 * MIB), zeros(2 * GIB)
    del more
    found = []
    for _ in range(2):
        snapshot = tfgpu_magic.look(30 * SLACK)._replace(processes=())
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
