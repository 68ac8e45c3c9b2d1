"""`%tf_gpu why` below errors of the real TensorFlow on simulated machines, and what its first line does for a cell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.frameworks.cells_on_machine import stage
from tests.insight.why_on_machine import (
    AWAKE,
    RAISES,
    first_line,
    followed,
    seen,
)
from tests.machines import machine_of
from tests.magic.shell import Seen, cells
from tests.processes import run
from tests.sizes import CONTEXT, GIB, MIB
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.simgpu.build import SOURCES

machine = machine_of("1x8GiB")

TWO_GIB = "import tensorflow as tf\nbig = tf.zeros((512, 1024, 1024))\nprint('it', 'fits', big.shape)"
WHY = "%tf_gpu why"
TAKE = "import torch; x = torch.zeros(2 * 2**30, 'cuda:0')"
COPIED = """
import numpy as np, tensorflow as tf
big = tf.constant(np.zeros((128, 2**20), 'float32'))
print('it', 'fits')
"""


def test_a_tensor_that_does_not_fit_into_a_limit(machine: Machine) -> None:
    before, found, again = run(machine, followed, "%tf_gpu limit 1GiB", AWAKE, TWO_GIB, imported=False)

    assert before[2].error == "ResourceExhaustedError"
    assert "Traceback" in before[2].text
    assert before[2].text.index("Traceback") < before[2].text.index("Out of GPU memory (In [4], ")
    assert (found.cause, found.shortage.size, found.shortage.shape) == ("limit", 2 * GIB, (512, 1024, 1024))
    assert (found.pool.limit, found.pool.capped, found.gpu.gpu) == (GIB, True, "0")
    assert [process.who for process in found.processes] == ["this"]
    assert found.processes[0].held == GIB + CONTEXT
    assert before[3].value == before[2].value  # %tf_gpu why shows it again
    assert before[3].html == before[2].html
    assert "it fits (512, 1024, 1024)" in again[0].text
    assert [way.kind for way in found.remedies] == ["isolate", "restart", "smaller"]


def test_the_policy_for_a_restart_has_room_for_what_failed_also_for_an_array_that_was_copied(machine: Machine) -> None:
    (*_, failed), found = run(machine, seen, "%tf_gpu limit 256MiB", COPIED)
    (policy,) = (way.words for way in found.remedies if way.kind == "restart")
    _, made = run(machine, cells, f"%tf_gpu {policy}", COPIED)

    assert "Dst tensor is not initialized" in failed.text
    assert "512 MiB did not fit into TensorFlow's pool on GPU:0, which is limited to 256 MiB" in failed.text
    assert (found.shortage.size, found.shortage.device) == (512 * MIB, "GPU:0")
    assert made.error == ""
    assert "it fits" in made.text


ADDED = "y = x + x\nprint('it', 'fits')"
IN_A_GRAPH = "f = tf.function(lambda: tf.zeros((64, 2**20)) + 1)\ny = f()\nprint('it', 'fits')"
TRAINED = """
import keras
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(2**22)])
model.compile('sgd', 'mse')
print('it', 'fits')
"""


@pytest.mark.parametrize(
    ("before", "cell", "size"),
    [
        ("x = tf.zeros((40, 2**20))", ADDED, None),  # an error that tells no size
        ("pass", IN_A_GRAPH, 256 * MIB),
        ("pass", TRAINED, 256 * MIB),
    ],
)
def test_each_way_to_run_out_of_memory_ends_with_a_line_that_helps(
    machine: Machine, before: str, cell: str, size: int | None
) -> None:
    (*_, failed, _), found, again = run(machine, followed, "%tf_gpu limit 256MiB", AWAKE, before, cell, imported=False)

    assert failed.error
    assert (found.cause, found.shortage.size) == ("limit", size)
    assert "it fits" not in failed.text
    assert "it fits" in again[0].text


def test_what_only_out_keeps_is_let_go_of(machine: Machine) -> None:
    half = "big = tf.zeros((32, 2**20))\nprint('it', 'fits')"
    before, found, again = run(
        machine, followed, "%tf_gpu limit 256MiB", AWAKE, "tf.zeros((40, 2**20))", half, imported=False
    )

    assert found.biggest[0].name.expression == "Out[4]"
    assert first_line(before[-1].value) == "%tf_gpu free"
    assert "it fits" in again[1].text


SCATTERED = "parts = [tf.zeros((6, 2**20)) for _ in range(10)]\ndel parts[::2]"  # the last one had the rest, too


def test_memory_that_is_free_in_pieces_may_be_meant_where_the_pool_was_fuller_before(machine: Machine) -> None:
    large = "big = tf.zeros((16, 2**20))\nprint('it', 'fits')"
    before, found, again = run(machine, followed, "%tf_gpu limit 256MiB", AWAKE, SCATTERED, large, imported=False)

    assert (found.cause, found.shortage.size) == ("limit", 64 * MIB)
    assert found.pool.in_use <= 140 * MIB < 240 * MIB <= found.pool.peak
    assert "If it was not full again, its free memory was in pieces." in before[-2].text
    assert "it fits" in again[0].text


def test_growth_that_gives_back_is_explained_by_what_cuda_has_taken() -> None:
    with Machine.create("2x8GiB") as two:
        two.add_neighbour("7GiB@0")
        before, found, again = run(two, followed, "%tf_gpu growth --release", AWAKE, TWO_GIB, imported=False)

    assert (found.cause, found.pool.limit, found.pool.releases) == ("gpu", None, True)
    assert found.pool.taken >= found.pool.in_use
    assert "taken from the driver, grows" in before[2].text
    assert [way.words for way in found.remedies if way.kind == "restart"] == ["pick --need 3.1GiB; growth --release"]
    assert "it fits" in again[0].text


@pytest.mark.smoke
def test_a_part_of_a_split_that_is_full_is_made_larger(machine: Machine) -> None:
    (*_, failed), found = run(machine, seen, "%tf_gpu split 1GiB 1GiB", AWAKE, RAISES.replace("GPU:0", "GPU:1"))

    assert found.pool.name == "GPU:1"
    assert "%tf_gpu split 1GiB 3GiB" in failed.text


def test_a_first_op_on_a_full_gpu_is_explained_and_tensorflow_is_let_alone() -> None:
    with Machine.create("2x8GiB") as two:
        two.add_neighbour("7.8GiB@0")
        first = "import tensorflow as tf\nx = tf.constant(1)\nprint('it', 'fits')"
        (failed, again), found = run(two, seen, first, "%tf_gpu why")
        passed: list[Seen] = run(two, cells, first_line(again.value), first)

    assert "CUDA_ERROR_OUT_OF_MEMORY" in failed.text
    assert "TensorFlow could not start on GPU 0" in failed.text
    assert "may hang for good" in failed.text
    assert (found.cause, found.pool, found.biggest) == ("start", None, ())
    assert first_line(again.value) == "%tf_gpu pick"
    assert "it fits" in passed[1].text


def test_a_gpu_that_others_hold_is_left_for_one_that_is_free() -> None:
    with Machine.create("2x8GiB") as two:
        two.add_neighbour("5GiB@0")
        before, found, again = run(two, followed, "%tf_gpu growth", AWAKE, TWO_GIB, imported=False)

    assert found.cause == "pool"
    assert "free of GPU 0 when TensorFlow started" in before[2].text
    assert found.processes[0].held == 5 * GIB
    assert found.remedies[0].words == "pick --need 3.1GiB; growth"
    assert "it fits" in again[0].text


def test_an_isolated_cell_tells_what_its_process_had(machine: Machine) -> None:
    before, found, again = run(machine, _isolated, imported=False)

    assert before.error == "ResourceExhaustedError"
    assert before.text.count("Out of GPU memory") == 1
    assert (found.call, found.cause, found.pool.limit) == (True, "limit", 256 * MIB)
    assert found.processes[0].held == 256 * MIB + CONTEXT  # as it was when it failed
    assert "'s isolated cell" in before.text
    assert found.remedies[0].words == "growth"
    assert "it fits" in again.text


def _isolated() -> tuple[Seen, object, Seen]:
    (failed,), found = seen(f"%%tf_gpu isolate limit 256MiB\n{AWAKE}\n{TWO_GIB}")
    assert found is not None, failed.text
    (again,) = cells(f"{first_line(failed.text)}\n{TWO_GIB}")
    return failed, found, again


BLAS = r"""
#define _GNU_SOURCE
#define cublasCreate_v2 create
#include "blas.c"
#undef cublasCreate_v2
#include <dlfcn.h>
#include <stdlib.h>

EXPORT int cublasCreate_v2(void **to)
{
    size_t free = 0, total = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    int (*info)(size_t *, size_t *) = (int (*)(size_t *, size_t *))dlsym(driver, "cuMemGetInfo_v2");
    if (!getenv("BROKEN") && !info(&free, &total) && free >= (size_t)512 << 20)
        return create(to);
    *to = NULL;
    return 1; /* CUBLAS_STATUS_NOT_INITIALIZED */
}
"""


@pytest.fixture(scope="module")
def blas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a cuBLAS that wants room beside the pool, as the real one does; or that is broken by a variable."""
    folder = tmp_path_factory.mktemp("cublas")
    source = folder / "cublas.c"
    source.write_text(BLAS)
    library = folder / "libcublas.so.12"
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-I", SOURCES, "-o", library, source, "-ldl"], check=True)
    return folder


PRODUCT = "import tensorflow as tf\na = tf.zeros((64, 64))\nb = a @ a\nprint('it', 'fits')"


def test_cublas_that_finds_no_room_is_explained_and_a_smaller_pool_leaves_some(blas: Path) -> None:
    with Machine.create("1x8GiB") as full:
        full.add_neighbour("5.9GiB@0")
        env = {"LD_LIBRARY_PATH": f"{blas}{os.pathsep}{full.environ()['LD_LIBRARY_PATH']}"}
        (_, failed, told), found = run(full, seen, "%tf_gpu limit 1.5GiB", PRODUCT, WHY, env=env, fresh=True)
        passed: list[Seen] = run(full, cells, first_line(told.value), PRODUCT, env=env, fresh=True)

    assert failed.error
    assert "cuBLAS may have found no room beside the memory that is taken already" in failed.text
    assert found.cause == "library"
    assert first_line(told.value) == "%tf_gpu growth"
    assert "it fits" in passed[1].text


def test_cublas_that_fails_with_memory_free_lacks_something_else(machine: Machine, blas: Path) -> None:
    path = f"{blas}{os.pathsep}{machine.environ()['LD_LIBRARY_PATH']}"
    env = {"LD_LIBRARY_PATH": path, "BROKEN": "1"}
    (_, failed), found = run(machine, seen, "%tf_gpu limit 1.5GiB", PRODUCT, env=env, fresh=True)

    assert failed.error
    assert "Out of GPU memory" not in failed.text
    assert found is None


def test_a_cap_of_pytorchs_is_explained_by_its_size(machine: Machine) -> None:
    """PyTorch is a stand-in that takes its memory of the simulated driver, and heeds a fraction."""
    with stage(machine) as play:
        *_, capped, told = play({}, ["%load_ext tfgpu_magic", "%gpu limit 1GiB", TAKE, WHY])

    assert "CUDA out of memory" in capped
    assert "2 GiB did not fit into PyTorch's pool on cuda:0, which is limited to " in capped
    assert first_line(told) == "%%gpu isolate growth"
