"""Under `growth --release` the real TensorFlow's memory goes back to the driver, whose account is the judge."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tfgpu_magic
from tests.processes import run
from tests.sizes import CONTEXT, GIB, LITTLE, MIB
from tests.tf.on_machine import held, touch_every_gpu
from tests.tf.test_calls import listed, ready
from tfgpu_magic import control
from tfgpu_magic.config import script
from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.config.runtime import current_stage
from tfgpu_magic.config.self_report import after_exit
from tfgpu_magic.frameworks.tensorflow import TensorFlow
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.views.plan import PlanAnswer

SOME = 64 * MIB
"""More than a small model in training has beside its context."""


def test_what_is_freed_stays_held_until_it_is_given_back_and_what_lives_stays() -> None:
    with Machine.create("8GiB") as machine:
        before, freed, gone, after, again = run(machine, _up_and_down)

    assert before[0] - CONTEXT in range(3 * GIB, 3 * GIB + SOME)
    assert freed == before  # TensorFlow's own figure fell, and the driver's did not
    assert gone == before[0] - after[0]
    assert after[0] - CONTEXT in range(GIB, GIB + SOME)
    assert again == before


def test_five_times_up_and_down_and_training_goes_on() -> None:
    with Machine.create("8GiB") as machine:
        rounds = run(machine, _train_five_times)

    assert len(rounds) == 5
    for up, down, lives, epochs in rounds:
        assert up - CONTEXT > 2 * GIB
        assert 0 <= down - CONTEXT - lives < 2 * MIB  # each tensor takes whole pages
        assert 0 < lives < SOME
        assert epochs == 2


def test_each_gpu_gives_back_its_own() -> None:
    with Machine.create("2x8GiB") as machine:
        before, gone, after = run(machine, _on_two_gpus)

    assert [size - CONTEXT >= want for size, want in zip(before, (GIB, 2 * GIB), strict=True)] == [True, True]
    assert [before[0] - after[0], before[1] - after[1]] == gone
    assert [size in LITTLE for size in after] == [True, True]


@pytest.mark.parametrize(
    "words", ["growth --release", "visible 1; growth --release", "growth --release; split 2 --cpu"]
)
@pytest.mark.parametrize("before", [None, listed])
def test_it_is_in_force_wherever_tensorflow_has_come_before_its_first_op(words: str, before: object) -> None:
    with Machine.create("2x8GiB") as machine:
        gone = run(machine, _give_back_after, words, before)

    assert gone >= GIB


def test_growth_without_it_replaces_it() -> None:
    with Machine.create("8GiB") as machine:
        assert "until this program ends" in run(machine, _refused, "growth --release", "growth")


def test_where_it_was_not_asked_for_it_is_refused_and_nothing_is_given_back() -> None:
    with Machine.create("8GiB") as machine:
        text = run(machine, _refused, "growth")

    assert "Traceback" not in text
    assert "It gives back what it does not use where `growth --release` was said before its first operation." in text


def test_after_the_first_op_it_is_too_late_for_it() -> None:
    with Machine.create("8GiB") as machine:
        assert "already using the GPUs" in run(machine, _too_late)


@pytest.mark.parametrize("before", [None, listed])
def test_giving_back_starts_nothing(before: object) -> None:
    with Machine.create("8GiB") as machine:
        stage, after, gone, sizes = run(machine, _give_back_at_rest, before)

    assert (after, gone, sizes) == (stage, 0, [0])
    assert stage is (Stage.IMPORTED if before is None else Stage.LISTED)


def test_a_gpu_that_is_lost_hinders_no_other() -> None:
    with Machine.create("2x8GiB") as machine:
        assert run(machine, _with_a_lost_gpu) == [False, True]


def test_code_gives_back_without_tfgpu_magic() -> None:
    with Machine.create("8GiB") as machine:
        before, after = run(machine, _run_code)

    assert before[0] - CONTEXT >= GIB
    assert after[0] in LITTLE


def test_every_view_says_it() -> None:
    with Machine.create("8GiB") as machine:
        plan, waiting, in_force = run(machine, _views)

    assert "growth, gives back" in plan
    assert "growth, gives back" in waiting
    assert "growth, gives back" in in_force
    assert "In force: `growth --release`." in in_force


def test_figures_are_tensorflows_own_under_it_too() -> None:
    with Machine.create("8GiB") as machine:
        in_use, peak, after = run(machine, _figures)

    assert in_use in range(GIB, GIB + SOME)
    assert peak in range(3 * GIB, 3 * GIB + SOME)
    assert after == in_use  # giving back moves nothing that lives


def test_below_a_ceiling_of_the_environment_it_is_refused() -> None:
    with Machine.create("8GiB") as machine:
        text = run(machine, _refused_by_a_ceiling, env={"TFGPU_CEILING": "limit 40%"})

    assert "The ceiling here is `limit 40%`." in text
    assert "Up to the ceiling:   %tf_gpu growth" in text


def test_what_a_restart_gives_back_is_what_is_held_by_then() -> None:
    with Machine.create("8GiB") as machine:
        machine.add_neighbour("4GiB@0")
        before, after = run(machine, _after_a_restart)

    assert before - after in range(2 * GIB, 2 * GIB + SOME)


def test_an_isolated_call_has_it() -> None:
    with Machine.create("8GiB") as machine:
        gone = run(machine, _isolated)

    assert gone >= GIB


# --- what runs in a process on the machine ---


def _zeros(size: int) -> object:
    import tensorflow as tf

    return tf.zeros(size // 4)


def _in_use() -> int:
    import tensorflow as tf

    return int(tf.config.experimental.get_memory_info("GPU:0")["current"])


def _up_and_down() -> tuple[list[int], list[int], int, list[int], list[int]]:
    tfgpu_magic.apply("growth --release")
    lives, more = _zeros(GIB), _zeros(2 * GIB)
    before = held()
    del more
    assert _in_use() < 2 * GIB
    freed, gone, after = held(), tfgpu_magic.give_back(), held()
    more = _zeros(2 * GIB)
    again = held()
    assert lives is not more
    return before, freed, gone, after, again


def _train_five_times() -> list[tuple[int, int, int, int]]:
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
        big = _zeros(2 * GIB)
        (up,) = held()
        del big
        tfgpu_magic.give_back()
        (down,) = held()
        rounds.append((up, down, _in_use(), len(losses)))
    return rounds


def _on_two_gpus() -> tuple[list[int], list[int], list[int]]:
    import tensorflow as tf

    tfgpu_magic.apply("growth --release")
    kept = []
    for gpu, size in ((0, GIB), (1, 2 * GIB)):
        with tf.device(f"GPU:{gpu}"):
            kept.append(_zeros(size))
    before = held()
    kept.clear()
    gone = TensorFlow().give_back()
    uuids = [gpu.uuid for gpu in tfgpu_magic.look().gpus]
    return before, [gone[str(uuid)] for uuid in uuids], held()


def _give_back_after(words: str, before: object) -> int:
    if callable(before):
        before()
    tfgpu_magic.apply(words)
    big = _zeros(GIB)
    del big
    return tfgpu_magic.give_back()


def _refused(*lines: str) -> str:
    for words in lines:
        tfgpu_magic.apply(words)
    big = _zeros(GIB)
    del big
    before = held()
    try:
        tfgpu_magic.give_back()
    except tfgpu_magic.Refused as error:
        assert held() == before
        return str(error)
    return ""


def _too_late() -> str:
    ready()
    try:
        tfgpu_magic.apply("growth --release")
    except tfgpu_magic.TooLate as error:
        return str(error)
    return ""


def _give_back_at_rest(before: object) -> tuple[Stage, Stage, int, list[int]]:
    import tensorflow  # noqa: F401

    tfgpu_magic.apply("growth --release")
    if callable(before):
        before()
    stage = current_stage()
    gone = tfgpu_magic.give_back()
    return stage, current_stage(), gone, held()


def _with_a_lost_gpu() -> list[bool]:
    machine = Machine.current()
    assert machine is not None
    tfgpu_magic.apply("growth --release")
    import tensorflow as tf

    uuids = [str(gpu.uuid) for gpu in tfgpu_magic.look().gpus]
    kept = []
    for gpu in (0, 1):
        with tf.device(f"GPU:{gpu}"):
            kept.append(_zeros(GIB))
    kept.clear()
    machine.lose(0)
    gone = TensorFlow().give_back()
    return [gone.get(uuid, 0) >= GIB for uuid in uuids]


def _run_code() -> tuple[list[int], list[int]]:
    names: dict[str, object] = {}
    exec(script.python(control.sketch("growth --release")), names)
    big = _zeros(GIB)
    del big
    before = held()
    give_back = names["give_back"]
    assert callable(give_back)
    give_back()
    return before, held()


def _views() -> tuple[str, str, str]:
    shown = repr(PlanAnswer(tfgpu_magic.apply("growth --release"), ""))
    waiting = repr(tfgpu_magic.status())
    touch_every_gpu()
    return shown, waiting, repr(tfgpu_magic.status())


def _figures() -> tuple[int, int, int]:
    tfgpu_magic.apply("growth --release")
    lives, more = _zeros(GIB), _zeros(2 * GIB)
    del more
    ((in_use, peak),) = TensorFlow().figures().values()
    tfgpu_magic.give_back()
    assert lives is not None
    return in_use.size, peak.size, _in_use()


def _refused_by_a_ceiling() -> str:
    try:
        tfgpu_magic.apply("growth --release")
    except tfgpu_magic.Refused as error:
        assert not any(held())
        return str(error)
    return ""


def _after_a_restart() -> tuple[int, int]:
    """Return what is free after a restart, before and after this has given back; where the driver names no process."""
    tfgpu_magic.apply("growth --release")
    lives, more = _zeros(512 * MIB), _zeros(2 * GIB)
    del more
    found = []
    for _ in range(2):
        snapshot = replace(tfgpu_magic.look(), processes=())
        found.append(after_exit(snapshot).gpus[0].free or 0)
        found.append(snapshot.gpus[0].free or 0)
        tfgpu_magic.give_back()
    assert lives is not None
    return found[0] - found[1], found[2] - found[3]


def _isolated() -> int:
    return int(tfgpu_magic.isolated(policy="growth --release")(_give_back_in_a_call)())


def _give_back_in_a_call() -> int:
    big = _zeros(GIB)
    del big
    return tfgpu_magic.give_back()
