"""Under `growth --release` the real TensorFlow's memory goes back to the driver, whose account is the judge.

That training goes on, five times up and down, is in `insight/test_free.py`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

import tfgpu_magic
from tests.processes import on
from tests.sizes import CONTEXT, GIB, LITTLE, MIB
from tests.slack import SLACK
from tests.tf.on_machine import held, here, in_a_fork, in_use, zeros
from tests.tf.test_calls import listed, nothing
from tfgpu_magic.engine import engine
from tfgpu_magic.frameworks.self_report import after_exit
from tfgpu_magic.frameworks.tensorflow.devices import current_stage
from tfgpu_magic.frameworks.tensorflow.framework import TensorFlow
from tfgpu_magic.policy import script
from tfgpu_magic.policy.process_state import Stage

RELEASE = "growth --release"
SOME = 64 * MIB
"""More than TensorFlow has beside its context and its tensors."""


def given_back() -> dict[str, int]:
    """Return what TensorFlow gives back, by the number of each GPU."""
    gone = TensorFlow().give_back()
    return {str(gpu.index): gone.get(gpu.uuid, 0) for gpu in here().gpus()}


@on("8GiB")
def test_what_is_freed_stays_held_until_it_is_given_back_and_what_lives_stays() -> None:
    tfgpu_magic.apply(RELEASE)
    lives, more = zeros(GIB), zeros(2 * GIB)
    (before,) = held()
    assert before - CONTEXT in range(3 * GIB, 3 * GIB + SOME)
    del more
    ((current, peak),) = TensorFlow().figures().values()
    assert current.size in range(GIB, GIB + SOME)  # TensorFlow's own figure has fallen
    assert peak.size in range(3 * GIB, 3 * GIB + SOME)
    assert held() == [before]  # and the driver's has not

    gone = tfgpu_magic.give_back()

    assert held() == [before - gone]
    assert before - gone - CONTEXT in range(GIB, GIB + SOME)
    assert in_use() == current.size
    more = zeros(2 * GIB)
    assert held() == [before]
    assert lives is not more


@on("8GiB")
def test_threads_that_compute_may_go_on_meanwhile() -> None:
    tfgpu_magic.apply(RELEASE)
    lives, over, rounds = zeros(GIB), threading.Event(), list[int]()

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

    assert len(rounds) >= 100
    assert 0 <= held()[0] - CONTEXT - in_use() < 2 * MIB  # each tensor takes whole pages
    assert in_use() in range(GIB, GIB + SOME)
    assert lives is not None


@on("8GiB")
def test_a_forked_child_gives_back_nothing_and_takes_nothing_from_its_parent() -> None:
    tfgpu_magic.apply(RELEASE)
    zeros(GIB)
    before = held()

    assert in_a_fork(lambda: str(tfgpu_magic.give_back())) == "0"
    assert held() == before
    assert tfgpu_magic.give_back() >= GIB


@on("8GiB")
def test_the_users_own_variable_is_enough() -> None:
    os.environ["TF_GPU_ALLOCATOR"] = "cuda_malloc_async"
    tfgpu_magic.apply("growth")
    zeros(GIB)

    assert tfgpu_magic.give_back() >= GIB


@on("2x8GiB")
def test_each_gpu_gives_back_its_own() -> None:
    tfgpu_magic.apply(RELEASE)
    kept = [zeros(GIB), zeros(2 * GIB, gpu=1)]
    before = held()
    kept.clear()

    gone = given_back()

    assert [had - left for had, left in zip(before, held(), strict=True)] == [*gone.values()]
    assert all(left in LITTLE for left in held())


@on("2x8GiB")
def test_a_gpu_that_is_lost_hinders_no_other() -> None:
    tfgpu_magic.apply(RELEASE)
    kept = [zeros(GIB), zeros(GIB, gpu=1)]
    kept.clear()
    here().lose(0)

    assert [size >= GIB for size in given_back().values()] == [False, True]


@pytest.mark.parametrize(
    ("words", "before"),
    [(RELEASE, nothing), (f"visible 1; {RELEASE}", listed), (f"{RELEASE}; split 2 --cpu", listed)],
)
@on("2x8GiB")
def test_it_is_in_force_wherever_tensorflow_has_come_before_its_first_op(
    words: str, before: Callable[[], None]
) -> None:
    before()
    tfgpu_magic.apply(words)
    zeros(GIB)

    assert tfgpu_magic.give_back() >= GIB


@on("8GiB")
def test_where_it_was_not_asked_for_it_is_refused_and_nothing_is_given_back() -> None:
    tfgpu_magic.apply("growth")
    zeros(GIB)
    before = held()

    with pytest.raises(tfgpu_magic.Refused, match="where `growth --release` was said"):
        tfgpu_magic.give_back()
    assert held() == before


@pytest.mark.parametrize(("before", "stage"), [(nothing, Stage.IMPORTED), (listed, Stage.LISTED)])
@on("8GiB")
def test_giving_back_starts_nothing(before: Callable[[], None], stage: Stage) -> None:
    tfgpu_magic.apply(RELEASE)
    before()

    assert tfgpu_magic.give_back() == 0
    assert (current_stage(), held()) == (stage, [0])


@on("8GiB")
def test_code_gives_back_without_tfgpu_magic() -> None:
    names: dict[str, object] = {}
    exec(script.python(engine.sketch(RELEASE)), names)
    zeros(GIB)
    assert held()[0] - CONTEXT >= GIB
    give_back = names["give_back"]
    assert callable(give_back)

    give_back()

    assert held()[0] in LITTLE


@on("8GiB", "4GiB@0")
def test_what_a_restart_gives_back_is_what_is_held_by_then() -> None:
    """Also where the driver names no process."""
    tfgpu_magic.apply(RELEASE)
    lives = [zeros(512 * MIB), zeros(2 * GIB)]
    lives.pop()

    def by_a_restart() -> int:
        now = tfgpu_magic.look(30 * SLACK)._replace(processes=())
        return (after_exit(now).gpus[0].free or 0) - (now.gpus[0].free or 0)

    before = by_a_restart()
    tfgpu_magic.give_back()

    assert before - by_a_restart() in range(2 * GIB, 2 * GIB + SOME)


@on("8GiB")
def test_an_isolated_call_has_it() -> None:
    assert tfgpu_magic.isolated(policy=RELEASE)(_give_back)() >= GIB


def _give_back() -> int:
    zeros(GIB)
    return tfgpu_magic.give_back()
