"""`%tf_gpu why` below errors of the real TensorFlow on simulated machines, and what its first line does for a cell.

Which cause follows from which figures is in `test_causes.py`, what is advised then in `test_ways.py`, and what is let
go of in `reports/test_why.py`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.frameworks.cells_on_machine import stage
from tests.insight.why_on_machine import AWAKE, RAISES, again, failed, first_line, seen
from tests.machines import machine_of
from tests.magic.shell import cells
from tests.processes import on, run
from tests.sizes import CONTEXT, GIB, MIB
from tfgpu_magic.insight.why.explanation import Explanation
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.simgpu.build import SOURCES

machine = machine_of("1x8GiB")

TWO_GIB = "import tensorflow as tf\nbig = tf.zeros((512, 1024, 1024))\nprint('it', 'fits', big.shape)"
TAKE = "import torch; x = torch.zeros(2 * 2**30, 'cuda:0')"
COPIED = """
import numpy as np, tensorflow as tf
big = tf.constant(np.zeros((128, 2**20), 'float32'))
print('it', 'fits')
"""


@on("1x8GiB", imported=False)
def test_a_tensor_that_does_not_fit_into_a_limit() -> None:
    shown, found = failed("%tf_gpu limit 1GiB", AWAKE, TWO_GIB)

    assert shown.error == "ResourceExhaustedError"
    assert shown.text.index("Traceback") < shown.text.index("Out of GPU memory (In [4], ")
    assert (found.cause, found.shortage.size, found.shortage.shape) == ("limit", 2 * GIB, (512, 1024, 1024))
    assert found.pool is not None
    assert found.gpu is not None
    assert (found.pool.limit, found.pool.capped, found.gpu.label) == (GIB, True, "0")
    assert [(row.owner.who, row.process.held) for row in found.processes] == [("this", GIB + CONTEXT)]
    assert [way.kind for way in found.remedies] == ["isolate", "restart", "smaller"]
    (why,) = cells("%tf_gpu why")
    assert (why.value, why.html) == (shown.value, shown.html)
    assert "it fits (512, 1024, 1024)" in again(TWO_GIB).text


def test_the_policy_for_a_restart_has_room_for_what_failed_also_for_an_array_that_was_copied(machine: Machine) -> None:
    shown, found = run(machine, failed, "%tf_gpu limit 256MiB", COPIED)
    (policy,) = (way.words for way in found.remedies if way.kind == "restart")
    _, made = run(machine, cells, f"%tf_gpu {policy}", COPIED)

    assert "Dst tensor is not initialized" in shown.text
    assert (found.shortage.size, found.shortage.device) == (512 * MIB, "GPU:0")
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
@on("1x8GiB", imported=False)
def test_each_way_to_run_out_of_memory_ends_with_a_line_that_helps(before: str, cell: str, size: int | None) -> None:
    shown, found = failed("%tf_gpu limit 256MiB", AWAKE, before, cell)

    assert (found.cause, found.shortage.size) == ("limit", size)
    assert "it fits" not in shown.text
    assert "it fits" in again(cell).text


LEAK = "history = []\nfor _ in range(800): history.append(tf.zeros((2**18,)))"
MORE = "big = tf.zeros((400, 2**18))\nprint('it', 'fits')"


@pytest.mark.parametrize(
    ("before", "cell", "size", "again_first"),
    [
        (f"{LEAK}\nx = tf.zeros((150, 2**18))", ADDED, None, ""),  # an error that tells no size
        (LEAK, MORE, 400 * MIB, ""),  # an isolated cell had room, and the leak stayed
        (LEAK, f"{MORE}; history.append(big)", 400 * MIB, "define `history` again, and "),
    ],
)
@on("1x8GiB", imported=False)
def test_a_list_that_leaks_is_freed_first(before: str, cell: str, size: int | None, again_first: str) -> None:
    shown, found = failed("%tf_gpu limit 1GiB", AWAKE, before, cell)

    assert (found.cause, found.shortage.size) == ("limit", size)
    assert first_line(shown.text) == "%tf_gpu free history"
    assert f"frees 800 MiB; then {again_first}run the cell again" in shown.text
    assert [way.kind for way in found.remedies[3:]] == ["other"]
    assert "%tf_gpu tensors   " in shown.text
    freed, *_, made = cells("%tf_gpu free history", "history = []" if again_first else "pass", cell)
    assert "Deleted: `history`. Run the code that makes a deleted name before you use it again." in freed.value
    assert "it fits" in made.text


@on("1x8GiB", imported=False)
def test_why_offers_the_leak_though_no_cell_is_known() -> None:
    *_, asked = cells("%config TfGpuMagics.why = False", "%tf_gpu limit 1GiB", AWAKE, LEAK, MORE, "%tf_gpu why")

    assert first_line(asked.text) == "%tf_gpu free history"


@pytest.mark.parametrize(
    ("policy", "cell", "again_first"), [("growth", TWO_GIB, False), ("growth --release", TWO_GIB, True)]
)
def test_room_that_other_processes_hold_is_waited_for(policy: str, cell: str, again_first: bool) -> None:
    with Machine.create("1x8GiB") as full:
        full.add_foreign("6.5GiB@0")
        shown, found = run(full, failed, f"%tf_gpu {policy}", AWAKE, cell, imported=False)

    assert found.cause == ("gpu" if again_first else "pool")
    assert ("Run the cell again" in shown.text) == again_first
    isolated = "%%tf_gpu isolate " * again_first or "%tf_gpu "
    later = "growth --release" if again_first else "growth"
    assert f"{isolated}pick --need 3.1GiB; {later} --wait" in shown.text


def test_a_start_on_a_full_gpu_can_wait() -> None:
    with Machine.create("1x8GiB") as full:
        full.add_foreign("7.8GiB@0")
        shown, found = run(full, failed, "import tensorflow as tf\nx = tf.constant(1)")

    assert found.cause == "start"
    assert first_line(shown.text) == "%tf_gpu pick --wait"


@pytest.mark.parametrize(
    ("neighbour", "words", "cause"), [("5GiB@0", "growth", "pool"), ("7GiB@0", "growth --release", "gpu")]
)
def test_a_gpu_that_others_hold_is_left_for_one_that_is_free(neighbour: str, words: str, cause: str) -> None:
    with Machine.create("2x8GiB") as two:
        two.add_neighbour(neighbour)
        found, passed = run(two, _found_and_again, f"%tf_gpu {words}", AWAKE, TWO_GIB, imported=False)

    assert found.cause == cause
    assert f"{found.processes[0].process.held // GIB}GiB@0" == neighbour
    releases = "--release" in words
    assert (found.pool.releases, found.pool.limit is None) == (releases, releases)
    assert (found.pool.taken or 0) >= found.pool.in_use * releases
    assert next(way.words for way in found.remedies if way.kind == "restart") == f"pick --need 3.1GiB; {words}"
    assert "it fits" in passed


def _found_and_again(*sources: str) -> tuple[Explanation, str]:
    _, found = failed(*sources)
    return found, again(sources[-1]).text


@pytest.mark.smoke
@on("1x8GiB")
def test_a_part_of_a_split_that_is_full_is_made_larger() -> None:
    shown, found = failed("%tf_gpu split 1GiB 1GiB", AWAKE, RAISES.replace("GPU:0", "GPU:1"))

    assert found.pool is not None
    assert found.pool.name == "GPU:1"
    assert "%tf_gpu split 1GiB 3GiB" in shown.text


def test_a_first_op_on_a_full_gpu_is_explained_and_tensorflow_is_let_alone() -> None:
    first = "import tensorflow as tf\nx = tf.constant(1)\nprint('it', 'fits')"
    with Machine.create("2x8GiB") as two:
        two.add_neighbour("7.8GiB@0")
        shown, found = run(two, failed, first)
        _, passed = run(two, cells, first_line(shown.text), first)

    assert "CUDA_ERROR_OUT_OF_MEMORY" in shown.text
    assert "may hang for good" in shown.text
    assert (found.cause, found.pool, found.biggest) == ("start", None, ())
    assert first_line(shown.text) == "%tf_gpu pick"
    assert "it fits" in passed.text


@on("1x8GiB", imported=False)
def test_an_isolated_cell_tells_what_its_process_had() -> None:
    shown, found = failed(f"%%tf_gpu isolate limit 256MiB\n{AWAKE}\n{TWO_GIB}")

    assert shown.error == "ResourceExhaustedError"
    assert shown.text.count("Out of GPU memory") == 1
    assert "'s isolated cell" in shown.text
    assert found.pool is not None
    assert (found.call, found.cause, found.pool.limit) == (True, "limit", 256 * MIB)
    assert found.processes[0].process.held == 256 * MIB + CONTEXT  # as it was when it failed
    assert found.remedies[0].words == "growth"
    assert "it fits" in again(TWO_GIB).text


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
        shown, found = run(full, failed, "%tf_gpu limit 1.5GiB", PRODUCT, env=env, fresh=True)
        _, passed = run(full, cells, first_line(shown.text), PRODUCT, env=env, fresh=True)

    assert shown.error
    assert found.cause == "library"
    assert first_line(shown.text) == "%tf_gpu growth"
    assert "it fits" in passed.text


def test_cublas_that_fails_with_memory_free_lacks_something_else(machine: Machine, blas: Path) -> None:
    path = f"{blas}{os.pathsep}{machine.environ()['LD_LIBRARY_PATH']}"
    env = {"LD_LIBRARY_PATH": path, "BROKEN": "1"}
    (_, shown), found = run(machine, seen, "%tf_gpu limit 1.5GiB", PRODUCT, env=env, fresh=True)

    assert shown.error
    assert "Out of GPU memory" not in shown.text
    assert found is None


def test_a_cap_of_pytorchs_is_explained_by_its_size(machine: Machine) -> None:
    """PyTorch is a stand-in that takes its memory of the simulated driver, and heeds a fraction."""
    with stage(machine) as play:
        *_, capped = play({}, ["%load_ext tfgpu_magic", "%gpu limit 1GiB", TAKE])

    assert "CUDA out of memory" in capped
    assert "2 GiB did not fit into PyTorch's pool on cuda:0, which is limited to " in capped
    assert first_line(capped) == "%%gpu isolate growth"
