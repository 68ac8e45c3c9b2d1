"""`%gpu` in a real IPython: isolated cells, Keras and what is installed late; `frameworks.test_held` has the rest.

PyTorch and JAX are stand-ins.
"""

from __future__ import annotations

import pytest

from tests.frameworks.cells_on_machine import STAND_IN
from tests.magic.cells import Cells, in_a_process
from tests.sizes import GIB, MIB
from tfgpu_magic.simgpu import Machine

INSTALLED = f"import sys; sys.path.insert(0, {str(STAND_IN)!r})"
TF = "import tensorflow as tf; x = tf.zeros(1000)"
OOM = "OutOfMemoryError"
TAKES = "import torch; x = torch.zeros({} * 2**30)"
ISOLATED = f"%%tf_gpu isolate\n{TAKES.format(3)}", OOM
TOO_LATE = "JAX is already using a GPU in this session, so its memory cannot be changed any more."
TAKEN = "PyTorch has taken 3 GiB of GPU 0 already, and is to have 2 GiB."

SCENES = {
    "an isolated cell has the others' policy beside TensorFlow's own": Cells(
        *(INSTALLED, "%gpu limit 2GiB", (f"%%tf_gpu isolate split 2\n{TAKES.format(3)}", OOM)),
        *("%tf_gpu limit 6GiB", ISOLATED, (f"%%gpu isolate limit 1GiB\n{TAKES.format(3)}", OOM)),
    ),
    "and the configured one in frameworks that the notebook has not imported": Cells(
        INSTALLED, ISOLATED, env={"TFGPU_POLICY": "limit 2GiB"}
    ),
    "none is refused for a configured policy that a framework does not heed": Cells(
        INSTALLED,
        ("%%tf_gpu isolate\nprint('it', 'ran')", "it ran"),
        env={"TFGPU_POLICY": "limit 2GiB", "XLA_PYTHON_CLIENT_ALLOCATOR": "platform"},
    ),
    "a framework that is installed after the line is held from its import on": Cells(
        "%gpu limit 2GiB", INSTALLED, (TAKES.format(3), OOM)
    ),
    "and under a ceiling": Cells(
        *("%tf_gpu limit 1GiB", INSTALLED, (TAKES.format(3), OOM)), env={"TFGPU_CEILING": "limit 2GiB"}
    ),
    "and by a line that is said once TensorFlow is used": Cells(
        f"%tf_gpu limit 1GiB\n{TF}\n%gpu limit 1GiB", INSTALLED, (TAKES.format(3), OOM)
    ),
}


@pytest.mark.parametrize("cells", SCENES.values(), ids=SCENES)
def test_what_every_framework_has(cells: Cells) -> None:
    cells.play(in_a_process("1x16GiB"))


def test_tensorflow_that_keras_imports_beside_jax_is_kept_from_the_gpu() -> None:
    said = "Keras computes with jax here and may import TensorFlow too, which is kept from the GPUs"
    use = f"import jax; jax.devices(); {TF}; print(mib())", f"[{4 * GIB // MIB + 256}]"
    with Machine.create("1x16GiB") as machine:
        here = Cells(INSTALLED, ("%gpu limit 4GiB", said), use, env={"KERAS_BACKEND": "jax"})
        here.play(in_a_process(machine))


def test_under_a_ceiling_a_line_for_tensorflow_is_not_late_because_another_framework_is() -> None:
    used = f"{INSTALLED}; import jax, torch; jax.devices(); torch.zeros(3 * 2**30)"
    lines = "%tf_gpu limit 1GiB", TF, "%gpu limit 1GiB"
    with Machine.create("1x32GiB") as machine:
        play = in_a_process(machine)
        _, loaded, given, taken, late = play({"TFGPU_CEILING": "limit 2GiB"}, [used, "%load_ext tfgpu_magic", *lines])

    assert TOO_LATE in loaded
    assert TAKEN in loaded
    assert "`limit 1GiB` takes effect when TensorFlow is imported." in given
    assert f"{TOO_LATE} The ceiling `limit 2GiB` does not hold it." in given
    assert TAKEN in given
    assert "left free" not in given
    assert ("Error" in taken, "UsageError" in late) == (False, True)
