"""What a process knows of itself is found in real processes: pipelines of the real TensorFlow, NCCL, its own maps."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.processes import run
from tfgpu_magic.parking.inside import introspection
from tfgpu_magic.parking.inside.introspection import NCCL, PREFETCHES
from tfgpu_magic.simgpu import Machine

ITERATORS = {
    "plain": "iter(data)",
    "prefetched to the host": "iter(data.prefetch(2))",
    "prefetched to the GPU": "iter(data.apply(tf.data.experimental.prefetch_to_device('/GPU:0')))",
    "in the middle": "iter(data.apply(tf.data.experimental.copy_to_device('/GPU:0')).map(lambda x: x).prefetch(2))",
    "of a strategy": "iter(tf.distribute.OneDeviceStrategy('/GPU:0').experimental_distribute_dataset(data))",
}


def _tensorflow() -> dict[str, list[bool]]:
    """Return of each iterator whether it is found, and what is said once it is gone."""
    import tensorflow as tf

    names = {"tf": tf, "data": tf.data.Dataset.range(16).batch(2)}
    found: dict[str, list[bool]] = {}
    for name, code in ITERATORS.items():
        alive = eval(code, names)
        next(alive)
        found[name] = [PREFETCHES in introspection.reasons()]
        del alive
        found[name].append(PREFETCHES in introspection.reasons())
    return found


def test_pipelines_to_a_gpu_are_seen() -> None:
    with Machine.create("1x8GiB") as machine:
        found = run(machine, _tensorflow)

    to_gpu = ("prefetched to the GPU", "in the middle", "of a strategy")
    assert found == {name: [name in to_gpu, False] for name in ITERATORS}


def test_nccl_that_pytorch_and_jax_only_load_has_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = frozenset({"/site-packages/nvidia/nccl/lib/libnccl.so.2"})
    for name in ("torch.distributed", "jax._src.distributed"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert introspection._nccl(loaded, 1)

    jax = SimpleNamespace(global_state=SimpleNamespace(client=None))
    monkeypatch.setitem(sys.modules, "jax._src.distributed", jax)
    assert not introspection._nccl(loaded, 1)
    assert introspection._nccl(loaded, 2)
    jax.global_state.client = "a client"
    assert introspection._nccl(loaded, 1)


def test_a_process_that_may_not_look_at_itself_is_not_parked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one is that dropped its rights: nobody could tell whether NCCL runs in it."""
    monkeypatch.setattr(introspection, "_MAPS", tmp_path / "none")

    assert NCCL in introspection.reasons()
