"""The main promises on a real NVIDIA GPU, NVML the judge: run with ``pytest -m gpu``. They need TensorFlow."""

from __future__ import annotations

import os
import sys
import time
from importlib.util import find_spec

import pytest

import tfgpu_magic
from tests.processes import program, run
from tests.sizes import GIB, MIB
from tests.tf.on_machine import touch_every_gpu
from tfgpu_magic.frameworks import self_report
from tfgpu_magic.ground.rows import ProcessRow
from tfgpu_magic.policy.memory import context_bytes
from tfgpu_magic.tell.fetch import Watcher

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed"),
]


def held() -> int:
    """Return what NVML accounts to this process on all GPUs; in a container with other pids, what all have used."""
    snapshot = tfgpu_magic.look()
    own = [process.held or 0 for process in snapshot.processes if process.pid == os.getpid()]
    return sum(own) if own else sum(gpu.used or 0 for gpu in snapshot.gpus)


def test_a_limit_is_what_is_held_beside_the_context() -> None:
    size, context = run(None, _held_after, "visible 0; limit 2GiB", 0, fresh=True)

    assert 2 * GIB < size <= 2 * GIB + context


def test_growth_holds_little() -> None:
    size, context = run(None, _held_after, "visible 0; growth", 64 * MIB, fresh=True)

    assert size < context + 256 * MIB


def test_a_cap_is_grown_into() -> None:
    size, context = run(None, _held_after, "visible 0; limit 2GiB --grow", 64 * MIB, fresh=True)

    assert size < context + 256 * MIB


def test_a_split_makes_two_logical_gpus() -> None:
    size, context = run(None, _held_after, "visible 0; split 1GiB 2GiB", 0, fresh=True)

    assert 3 * GIB < size <= 3 * GIB + context


def test_what_does_not_fit_beside_another_program_is_refused() -> None:
    words = "visible 0; limit 60%"
    with program(None, _held_after, words, 0, fresh=True), pytest.raises(AssertionError, match="Fits now"):
        run(None, _held_after, words, 0, fresh=True)


def test_memory_comes_back_when_the_process_ends() -> None:
    before = sum(gpu.used or 0 for gpu in tfgpu_magic.look().gpus)
    run(None, _held_after, "visible 0; limit 2GiB", 0, fresh=True)

    assert sum(gpu.used or 0 for gpu in tfgpu_magic.look().gpus) < before + 256 * MIB


def test_what_is_freed_goes_back_while_tensorflow_lives_and_what_lives_stays() -> None:
    before, gone, after, context = run(None, _given_back, fresh=True)

    assert gone > 2 * GIB - 64 * MIB
    assert abs(before - after - gone) < 64 * MIB
    assert after < context + 512 * MIB


def test_the_live_table_shows_a_kernel_with_both_accounts() -> None:
    row, size = run(None, _seen_live, fresh=True)

    if row.held is not None:  # a container's driver may not list it
        assert abs(row.held - size) < 64 * MIB
    assert row.use is not None
    assert 256 * MIB <= (row.use.in_use or 0) < 320 * MIB
    assert row.use.policy == "limit 2 GiB"


def test_an_isolated_call_gives_its_memory_back_and_does_not_wake_its_caller() -> None:
    inside, before, after, woken = run(None, _call_isolated, fresh=True)

    assert inside > 2 * GIB
    assert after < before + 64 * MIB
    assert not woken


def _call_isolated() -> tuple[int, int, int, bool]:
    """Return what an isolated call holds, what is used before and after, and whether TensorFlow was imported here."""
    before = sum(gpu.used or 0 for gpu in tfgpu_magic.look().gpus)
    inside = tfgpu_magic.isolated(policy="visible 0; limit 2GiB")(_held_by_an_op)()
    after = sum(gpu.used or 0 for gpu in tfgpu_magic.look().gpus)
    return inside, before, after, "tensorflow" in sys.modules


def _held_by_an_op() -> int:
    touch_every_gpu()
    return held()


def _given_back() -> tuple[int, int, int, int]:
    """Return what is held before and after, what went back, and what we reckon a context to be."""
    import tensorflow as tf

    plan = tfgpu_magic.apply("visible 0; growth --release")
    kept, more = tf.zeros(256 * MIB // 4), tf.zeros(2 * GIB // 4)
    del more
    before, gone, after = held(), tfgpu_magic.give_back(), held()
    assert kept.shape[0]
    return before, gone, after, context_bytes(plan.devices[0].gpu.total or 0)


def _seen_live() -> tuple[ProcessRow, int]:
    """Return this process's row of a live view, once the collector's lists have it, and what NVML says just after."""
    import tensorflow as tf

    tfgpu_magic.apply("visible 0; limit 2GiB")
    kept = tf.zeros(256 * MIB // 4)
    watcher = Watcher(kernel=os.getpid(), report=self_report.report)
    watcher.watch.wait(30)
    time.sleep(15)  # lists are read more rarely where they are slow
    (row,) = [row for row in watcher.read().processes if row.owner.who == "this"]
    watcher.close()
    assert kept.shape[0]
    return row, held()


def _held_after(words: str, tensor: int) -> tuple[int, int]:
    """Return what is held after the first op and a tensor of so many bytes, and what we reckon a context to be."""
    import tensorflow as tf

    plan = tfgpu_magic.apply(words)
    touch_every_gpu()
    with tf.device("GPU:0"):
        kept = tf.zeros(tensor // 4)
    size = held()
    assert kept.shape[0] == tensor // 4
    return size, context_bytes(plan.devices[0].gpu.total or 0)
