"""What a process says of itself is found in real processes: the real TensorFlow, a profiler, a library put before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.processes import QUIET, program, run
from tests.simgpu.talking import talker
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.inside import introspection
from tfgpu_magic.simgpu import Machine

ROOT = Path(__file__).parents[2]
ITERATORS = {
    "plain": "iter(data)",
    "prefetched to the host": "iter(data.prefetch(2))",
    "prefetched to the GPU": "iter(data.apply(tf.data.experimental.prefetch_to_device('/GPU:0')))",
    "in the middle": "iter(data.apply(tf.data.experimental.copy_to_device('/GPU:0')).map(lambda x: x).prefetch(2))",
    "of a strategy": "iter(tf.distribute.OneDeviceStrategy('/GPU:0').experimental_distribute_dataset(data))",
}


def _says(reason: why.Reason) -> bool:
    return reason() in introspection.of_process().against


def _tensorflow() -> dict[str, list[object]]:
    """Return of each iterator whether it is found, and what is said once it is gone; and of a profiler that has run."""
    import tensorflow as tf

    names = {"tf": tf, "data": tf.data.Dataset.range(16).batch(2)}
    found: dict[str, list[object]] = {}
    for name, code in ITERATORS.items():
        alive = eval(code, names)
        next(alive)
        found[name] = [_says(why.PREFETCHES)]
        del alive
        found[name].append(_says(why.PREFETCHES))
    before = introspection.of_process()
    tf.profiler.experimental.start("/tmp/none")
    tf.profiler.experimental.stop(save=False)
    found["profiled"] = [why.PROFILED() in before.against, _says(why.PROFILED)]
    found["contexts"] = [why.SEVERAL_GPUS() in before.against, len(before.libraries)]
    return found


def test_pipelines_to_a_gpu_and_profilers_of_tensorflow_are_seen() -> None:
    with Machine.create("2x8GiB") as machine:
        found = run(machine, _tensorflow)

    to_gpu = ("prefetched to the GPU", "in the middle", "of a strategy")
    assert {name: found[name] for name in ITERATORS} == {name: [name in to_gpu, False] for name in ITERATORS}
    assert found["profiled"] == [False, True]
    assert found["contexts"] == [True, 1]  # TensorFlow takes every GPU that it sees


def _nvml(*before: str) -> list[bool]:
    """Return whether NVML counts as kept at first, and after that was tried, with some code run before it."""
    for code in before:
        exec(code, {})
    at_first = introspection.of_process().nvml
    introspection.keep_nvml()
    return [at_first, introspection.of_process().nvml]


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        ([], True),
        (["import pynvml; pynvml.nvmlInit(); pynvml.nvmlShutdown()"], False),
        (["import ctypes; ctypes.CDLL('libcuda.so.1')"], False),
        (["import sys; sys.modules['torch'] = None"], False),
    ],
)
def test_nvml_is_kept_only_where_nothing_can_have_unloaded_it_before(before: list[str], kept: bool) -> None:
    with Machine.create() as machine, program(machine, _nvml, *before, imported=False, fresh=True) as done:
        assert done.answer == [False, kept]


def test_what_is_kept_is_not_unloaded_by_others_so_that_a_lock_does_not_end_the_process() -> None:
    keep = "__import__('tfgpu_magic.parking.inside.introspection', fromlist=['keep']).keep_nvml()"
    with Machine.create() as machine, talker(machine) as caller, talker(machine, keep, "hold(MIB)") as held:
        machine.set_driver("610.43.02")
        assert held.ask("unload_nvml(shut_down=False)") == 0
        assert caller.ask(f"calls({held.pid}, 'Lock', 'Unlock')") == [0, 0]


def _libraries() -> list[str]:
    import ctypes

    ctypes.CDLL("libcuda.so.1")
    return sorted(Path(file).name for file in introspection.of_process().libraries)


def test_a_library_that_has_the_drivers_calls_before_the_driver_is_seen(tmp_path: Path) -> None:
    between, other = tmp_path / "libvgpu.so", tmp_path / "libother.so"
    for file, code in ((between, "int cuInit(unsigned flags) { return 0; }"), (other, "int nothing(void);")):
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", file, "-"], input=code.encode(), check=True)
    code = f"from {__name__} import _libraries; print(_libraries())"
    with Machine.create() as machine:
        for preloaded, expected in ((between, ["libcuda.so.1", "libvgpu.so"]), (other, ["libcuda.so.1"])):
            env = QUIET | {"LD_PRELOAD": str(preloaded)}
            done = machine.run([sys.executable, "-c", code], env=env, cwd=ROOT, stdout=-1, text=True)
            assert done.stdout.strip() == str(expected)


def test_mps_is_known_by_its_name_and_by_its_daemons_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    monkeypatch.setattr(introspection, "_MPS", str(tmp_path))
    assert not _says(why.MPS)
    (tmp_path / "control").touch()
    assert _says(why.MPS)
    monkeypatch.setattr(os, "geteuid", lambda: 2**31)
    assert _says(why.MPS) == ((tmp_path / "control").stat().st_uid == 0)
    monkeypatch.setattr(introspection, "_MPS", str(tmp_path / "none"))
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/run/mps")
    assert _says(why.MPS)


def test_profilers_of_pytorch_and_jax_are_known_by_their_own_state(monkeypatch: pytest.MonkeyPatch) -> None:
    class profile:  # noqa: N801  # as PyTorch calls it
        pass

    monkeypatch.setitem(sys.modules, "torch.autograd.profiler", SimpleNamespace(profile=profile))
    monkeypatch.setitem(sys.modules, "jax._src.profiler", SimpleNamespace(_profile_state=SimpleNamespace()))
    always = frozenset({"/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12"})
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    assert not introspection._profiled(always)
    ended = profile()
    assert introspection._profiled(always)
    del ended
    monkeypatch.setattr(sys.modules["jax._src.profiler"]._profile_state, "profile_session", 1, raising=False)
    assert introspection._profiled(always)


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

    assert {why.NCCL(), why.PROFILED()} <= {*introspection.of_process().against}
