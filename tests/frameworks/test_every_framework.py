"""`%gpu` sets every framework up: with two of them in one process, in either order, at each stage.

PyTorch and JAX are stand-ins that take their memory of the simulated driver; TensorFlow is the real one.
"""

from __future__ import annotations

import decimal
import functools
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import tfgpu_magic
from tests.processes import run
from tests.sizes import CONTEXT, GIB, LITTLE, MIB
from tests.tf.on_machine import held, touch_every_gpu
from tfgpu_magic.config import self_report
from tfgpu_magic.simgpu import Machine

STAND_IN = str(Path(__file__).parent / "stand_in")


def torch_takes(size: int) -> str:
    """Have PyTorch take bytes of the first GPU; return what came of it."""
    torch = importlib.import_module("torch")

    try:
        torch.zeros(size)
    except torch.cuda.OutOfMemoryError:
        return "out of memory"
    return "taken"


def imports_torch() -> None:
    importlib.import_module("torch")


def uses_torch() -> None:
    torch_takes(GIB)


def imports_jax() -> None:
    importlib.import_module("jax")


def uses_jax() -> None:
    importlib.import_module("jax").devices()


def imports_tensorflow() -> None:
    import tensorflow  # noqa: F401


def nothing() -> None: ...


def calculates_with_few_digits() -> None:
    decimal.getcontext().prec = 4


def scene(machine: Machine, *steps: object, env: Mapping[str, str] = {}) -> list[object]:
    """Run steps in a new process: words for every framework, or functions; return what each gave, and what is held."""
    given: list[object] = run(machine, _steps, steps, env=env, imported=False)
    return given


def _steps(steps: tuple[str | Callable[[], object], ...]) -> list[object]:
    sys.path.insert(0, STAND_IN)
    given: list[object] = []
    for step in steps:
        try:
            if callable(step):
                given.append(step())
            elif step.startswith("tf: "):
                given.append(list(tfgpu_magic.apply(step[4:]).notes))
            else:
                given.append(list(tfgpu_magic.apply(step, frameworks="all").notes))
        except tfgpu_magic.Refused as error:
            given.append(f"{type(error).__name__}: {error}")
    return [*given, held()]


def five_gib() -> str:
    return torch_takes(5 * GIB)


def two_gib() -> str:
    return torch_takes(2 * GIB)


def three_gib() -> str:
    return torch_takes(3 * GIB)


def promised() -> list[float | None]:
    """Return the GiB that this process's report promises of each GPU."""
    return [use.limit and use.limit / GIB for use in self_report.brief().uses]


@pytest.fixture(scope="module")
def machine() -> object:
    with Machine.create("2x16GiB") as machine:
        yield machine


@pytest.mark.parametrize(
    "before",
    [nothing, calculates_with_few_digits, imports_torch, imports_jax, imports_tensorflow, uses_torch],
)
def test_a_limit_caps_pytorch_at_each_stage(machine: Machine, before: Callable[[], None]) -> None:
    *_, over, under, taken = scene(machine, before, "limit 4GiB", five_gib, two_gib)

    assert (over, under) == ("out of memory", "taken")
    assert taken[0] == (3 if before is uses_torch else 2) * GIB + CONTEXT  # type: ignore[index]


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        ("limit 4GiB", [4 * GIB + CONTEXT] * 2),
        ("limit 25%", [4 * GIB + CONTEXT] * 2),
        ("limit 4GiB --grow", [CONTEXT] * 2),
        ("growth", [CONTEXT] * 2),
        ("visible 1; limit 4GiB", [0, 4 * GIB + CONTEXT]),
        ("limit 0=1GiB 1=4GiB", [GIB + CONTEXT] * 2),  # it has one for all GPUs, and a note says so
    ],
)
@pytest.mark.parametrize("before", [nothing, imports_jax])
def test_what_jax_takes_is_what_the_words_say(
    machine: Machine, before: Callable[[], None], words: str, sizes: list[int]
) -> None:
    *_, taken = scene(machine, before, words, uses_jax)

    assert [round(size / MIB) for size in taken] == [size // MIB for size in sizes]  # type: ignore[attr-defined]


def test_one_limit_for_all_gpus_is_said() -> None:
    with Machine.create("8GiB,16GiB") as uneven:
        _, notes, _ = scene(uneven, imports_jax, "limit 4GiB")

    assert "JAX has one limit for all GPUs, a part of each: it takes no more than 2.0 GiB of GPU 0." in str(notes)


@pytest.mark.parametrize("first", [uses_torch, uses_jax])
def test_two_frameworks_have_the_limit_each_and_the_sum_is_said(machine: Machine, first: Callable[[], None]) -> None:
    second = uses_jax if first is uses_torch else uses_torch
    _, _, notes, *_, taken = scene(machine, imports_torch, imports_jax, "limit 2GiB", first, second)

    assert "Together they may take 4 GiB of GPU 0 (PyTorch 2 GiB, JAX 2 GiB)" in str(notes)
    assert round(taken[0] / MIB) == (3 * GIB + CONTEXT) // MIB  # type: ignore[index]


@pytest.mark.parametrize("order", [(uses_torch, touch_every_gpu), (touch_every_gpu, uses_torch)])
def test_tensorflow_and_pytorch_share_one_kernel(machine: Machine, order: tuple[Callable[[], None], ...]) -> None:
    *_, over, taken = scene(machine, "limit 2GiB", *order, three_gib)

    assert over == "out of memory"
    assert taken == [3 * GIB + CONTEXT, 2 * GIB + CONTEXT]


def test_it_is_too_late_for_jax_once_it_uses_a_gpu_and_nothing_is_applied(machine: Machine) -> None:
    _, refused, _, over, _ = scene(machine, uses_jax, "limit 2GiB", imports_torch, three_gib)

    assert str(refused).startswith("TooLate: Not applied. JAX is already using a GPU in this program, so its memory")
    assert 'before the first operation of JAX:   tfgpu_magic.apply("limit 2GiB", frameworks="all")' in str(refused)
    assert over == "taken"


def test_the_same_words_again_are_not_too_late(machine: Machine) -> None:
    *_, again, _ = scene(machine, "limit 2GiB", uses_jax, "limit 2GiB")

    assert "JAX takes 2 GiB of GPU 0, 1." in again  # type: ignore[operator]


def test_pytorch_that_has_taken_more_is_refused_with_the_figure(machine: Machine) -> None:
    _, refused, _ = scene(machine, five_gib, "limit 4GiB")

    assert "Refused: Not applied. PyTorch has taken 5 GiB of GPU 0 already, and is to have 4 GiB." in str(refused)


@pytest.mark.parametrize(
    ("variable", "options"),
    [
        ("PYTORCH_ALLOC_CONF", "max_split_size_mb:128"),
        ("PYTORCH_CUDA_ALLOC_CONF", "roundup_power2_divisions:[256:1,>:4]"),
    ],
)
def test_options_of_pytorchs_allocator_are_kept(machine: Machine, variable: str, options: str) -> None:
    look = functools.partial(value, variable)
    _, now, _, after, _ = scene(machine, "limit 4GiB", look, "default", look, env={variable: options})

    assert str(now).startswith(f"{options},per_process_memory_fraction:0.25")
    assert after == options


def value(variable: str) -> str | None:
    return os.environ.get(variable)


def test_words_for_tensorflow_say_what_they_leave_free_and_how_to_cap_it(machine: Machine) -> None:
    _, notes, size, _ = scene(machine, imports_torch, "tf: limit 2GiB", five_gib)

    assert "PyTorch is imported here too, and left free: `%gpu limit 2GiB` is for every framework." in str(notes)
    assert size == "taken"


def test_words_for_tensorflow_leave_the_others_as_they_were_told(machine: Machine) -> None:
    *_, size, _ = scene(machine, "limit 4GiB", "tf: limit 2GiB", five_gib)

    assert size == "out of memory"


def test_a_program_that_loads_no_extension_is_held_once_it_says_a_word(machine: Machine) -> None:
    *_, size, _ = scene(machine, "tf: limit 1GiB", five_gib, env={"TFGPU_CEILING": "limit 2GiB"})

    assert size == "out of memory"


def test_a_split_is_tensorflows_alone() -> None:
    with pytest.raises(tfgpu_magic.PolicyError, match="Only TensorFlow has logical GPUs: say `split 2`"):
        tfgpu_magic.apply("split 2", frameworks="all")


def test_a_growing_tensorflow_beside_a_growing_jax(machine: Machine) -> None:
    *_, taken = scene(machine, "growth", uses_jax, touch_every_gpu)

    assert all(size in LITTLE for size in taken)  # type: ignore[attr-defined]
    assert MIB


@pytest.mark.parametrize(
    ("steps", "most"),
    [
        (["limit 4GiB"], 4),  # the most of any, until one is imported
        ([imports_torch, imports_jax, "limit 4GiB"], 8),
        ([imports_tensorflow, imports_torch, "limit 2GiB"], 4),
        ([imports_torch, "limit 4GiB", "tf: limit 1GiB"], 4),
    ],
)
def test_a_process_promises_what_its_frameworks_may_take_together(
    machine: Machine, steps: list[str | Callable[[], None]], most: int
) -> None:
    *_, found, _ = scene(machine, *steps, promised)

    assert found == [most, most]


def test_so_does_one_whose_keras_keeps_tensorflow_from_the_gpus(machine: Machine) -> None:
    _, found, _ = scene(machine, "limit 4GiB", promised, env={"KERAS_BACKEND": "jax"})

    assert found == [4, 4]


def test_what_only_a_ceiling_limits_is_no_promise(machine: Machine) -> None:
    _, alone, _, both, _ = scene(
        machine, "tf: limit 1GiB", promised, imports_torch, promised, env={"TFGPU_CEILING": "limit 6GiB"}
    )

    assert (alone, both) == ([1, 1], [1, 1])
