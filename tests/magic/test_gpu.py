"""`%gpu` in a real IPython: isolated cells, Keras and what is installed late; `frameworks.test_held` has the rest.

PyTorch and JAX are stand-ins.
"""

from __future__ import annotations

import sys

import pytest

from tests.frameworks.cells_on_machine import STAND_IN
from tests.magic.shell import Seen, cells, loading
from tests.processes import run
from tests.sizes import CONTEXT, GIB, MIB
from tests.tf.on_machine import held
from tfgpu_magic.simgpu import Machine


def beside_stand_ins(*sources: str) -> tuple[list[Seen], list[int]]:
    """Run cells in one IPython in which PyTorch and JAX can be imported; return what each gave, and what is held."""
    sys.path.insert(0, str(STAND_IN))
    return cells(*sources), held()


def seen(*sources: str, gpus: str = "2x16GiB") -> list[Seen]:
    return seen_and_held(*sources, gpus=gpus)[0]


def seen_and_held(*sources: str, gpus: str = "1x16GiB", **env: str) -> tuple[list[Seen], list[int]]:
    """Run cells beside the stand-ins, on a machine and with variables of their own."""
    with Machine.create(gpus) as machine:
        given: tuple[list[Seen], list[int]] = run(machine, beside_stand_ins, *sources, env=env, imported=False)
        return given


def test_tensorflow_that_keras_imports_beside_jax_is_kept_from_the_gpu() -> None:
    sources = "%gpu limit 4GiB", "import jax; jax.devices(); import tensorflow as tf; x = tf.zeros(1000)"
    given, taken = seen_and_held(*sources, KERAS_BACKEND="jax")

    assert "Keras computes with jax here and may import TensorFlow too, which is kept from the GPUs" in given[0].value
    assert round(taken[0] / MIB) == (4 * GIB + CONTEXT) // MIB


def under_a_ceiling_too_late(*sources: str) -> tuple[str, list[Seen], list[int]]:
    """Have JAX and PyTorch use a GPU, load the extension under a ceiling, and run cells; return what loading said."""
    sys.path.insert(0, str(STAND_IN))
    import jax
    import torch

    jax.devices()
    torch.zeros(3 * 2**30)
    first, *given = loading(*sources)
    return first.text, given, held()


def test_under_a_ceiling_a_line_for_tensorflow_is_not_late_because_another_framework_is() -> None:
    with Machine.create("1x32GiB") as machine:
        loaded, given, _ = run(
            machine,
            under_a_ceiling_too_late,
            "%tf_gpu limit 1GiB",
            "import tensorflow as tf; x = tf.zeros(1)",
            "%gpu limit 1GiB",
            env={"TFGPU_CEILING": "limit 2GiB"},
            imported=False,
        )

    jax = "JAX is already using a GPU in this session, so its memory cannot be changed any more."
    torch = "PyTorch has taken 3 GiB of GPU 0 already, and is to have 2 GiB."
    assert jax in loaded
    assert torch in loaded
    assert "`limit 1GiB` waits for TensorFlow's import." in given[0].value
    assert f"{jax} The ceiling `limit 2GiB` does not hold it." in given[0].value
    assert torch in given[0].value
    assert "left free" not in given[0].value
    assert (given[1].error, given[2].error) == ("", "UsageError")


OOM = "OutOfMemoryError"
TAKES = "import torch; x = torch.zeros({} * 2**30)"


def test_an_isolated_cell_has_the_others_policy_beside_tensorflows_own() -> None:
    _, split, _, higher, named = seen(
        "%gpu limit 2GiB",
        f"%%tf_gpu isolate split 2\n{TAKES.format(3)}",
        "%tf_gpu limit 6GiB",
        f"%%tf_gpu isolate\n{TAKES.format(3)}",
        f"%%gpu isolate limit 1GiB\n{TAKES.format(3)}",
    )

    assert [split.error, higher.error, named.error] == [OOM, OOM, OOM]


def test_an_isolated_cell_has_the_configured_policy_in_frameworks_that_the_notebook_has_not_imported() -> None:
    with Machine.create("1x16GiB") as machine:
        given, _ = run(
            machine,
            beside_stand_ins,
            f"%%tf_gpu isolate\n{TAKES.format(3)}",
            env={"TFGPU_POLICY": "limit 2GiB"},
            imported=False,
        )

    assert given[-1].error == OOM


def test_no_isolated_cell_is_refused_for_a_configured_policy_that_a_framework_does_not_heed() -> None:
    env = {"TFGPU_POLICY": "limit 2GiB", "XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}
    with Machine.create("1x16GiB") as machine:
        given, _ = run(machine, beside_stand_ins, "%%tf_gpu isolate\nprint('ran')", env=env, imported=False)

    assert "ran" in given[-1].text


@pytest.mark.parametrize(
    ("line", "env"),
    [
        ("%gpu limit 2GiB", {}),
        ("%tf_gpu limit 1GiB", {"TFGPU_CEILING": "limit 2GiB"}),
        ("%tf_gpu limit 1GiB\nimport tensorflow as tf; x = tf.zeros(1)\n%gpu limit 1GiB", {}),
    ],
)
def test_a_framework_that_is_installed_after_the_line_is_held_from_its_import_on(
    line: str, env: dict[str, str]
) -> None:
    install = f"import sys; sys.path.insert(0, {str(STAND_IN)!r})"
    with Machine.create("1x16GiB") as machine:
        given: list[Seen] = run(machine, cells, line, install, TAKES.format(3), env=env, imported=False)

    assert given[-1].error == OOM
