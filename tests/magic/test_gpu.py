"""`%gpu` in a real IPython: the words of `%tf_gpu`, for every framework; PyTorch and JAX are stand-ins."""

from __future__ import annotations

import sys

import pytest

from tests.frameworks.test_every_framework import STAND_IN
from tests.magic.shell import Seen, cells, loading
from tests.processes import run
from tests.sizes import CONTEXT, GIB, MIB
from tests.tf.on_machine import held
from tfgpu_magic.simgpu import Machine


def beside_stand_ins(*sources: str) -> tuple[list[Seen], list[int]]:
    """Run cells in one IPython in which PyTorch and JAX can be imported; return what each gave, and what is held."""
    sys.path.insert(0, STAND_IN)
    return cells(*sources), held()


def seen(*sources: str, gpus: str = "2x16GiB") -> list[Seen]:
    return seen_and_held(*sources, gpus=gpus)[0]


def seen_and_held(*sources: str, gpus: str = "1x16GiB", **env: str) -> tuple[list[Seen], list[int]]:
    """Run cells beside the stand-ins, on a machine and with variables of their own."""
    with Machine.create(gpus) as machine:
        given: tuple[list[Seen], list[int]] = run(machine, beside_stand_ins, *sources, env=env, imported=False)
        return given


def test_a_limit_says_what_each_framework_takes() -> None:
    (answer,) = seen("%gpu limit 4GiB")

    assert "`limit 4GiB` holds for TensorFlow, PyTorch and JAX, from first use on." in answer.value
    assert "PyTorch takes up to 4 GiB of GPU 0, 1, as it needs it." in answer.value
    assert "JAX takes 4 GiB of GPU 0, 1." in answer.value


def test_too_late_names_the_framework_and_the_cell() -> None:
    *_, answer = seen("import jax", "x = jax.devices()", "y = 1", "%gpu limit 4GiB")

    assert "JAX is already using a GPU in this session, since In [3] (x = jax.devices()), so its memory" in answer.text
    assert "Leave IPython, start it again and say first:   %gpu limit 4GiB" in answer.text
    assert answer.error == "UsageError"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("%gpu limt 4GiB", "%gpu"),
        ("%gpu 4GiB", "`%gpu limit 4GiB`"),
        ("%gpu limit", "Write `%gpu limit 2GiB`"),
        ("%gpu split 2", "Only TensorFlow has logical GPUs: say `split 2` with its own magic, `tf_gpu`."),
        ("%gpu limit 15.9GiB", "%gpu limit"),
    ],
)
def test_a_mistake_is_answered_in_lines_of_the_magic_that_was_used(line: str, told: str) -> None:
    (answer,) = seen(line)

    assert told in answer.text
    assert answer.error == "UsageError"


def test_environment_variables_and_python_say_it_for_every_framework() -> None:
    env, code, plan = seen("%gpu env limit 4GiB", "%gpu code limit 4GiB", "%gpu plan limit 4GiB", gpus="1x16GiB")

    assert "export XLA_CLIENT_MEM_FRACTION=0.25" in env.value
    assert "export PYTORCH_ALLOC_CONF=per_process_memory_fraction:0.25" in env.value
    assert 'os.environ["XLA_CLIENT_MEM_FRACTION"] = "0.25' in code.value
    assert "JAX takes 4 GiB of GPU 0." in plan.value


def test_default_drops_it_for_every_framework() -> None:
    *_, variables = seen(
        "%gpu limit 4GiB",
        "%gpu default",
        "import os; [name for name in os.environ if 'XLA_' in name or 'ALLOC' in name]",
    )

    assert variables.text.endswith("[]\n")


def test_every_figure_of_every_framework_is_in_the_status() -> None:
    *_, answer = seen("%gpu limit 4GiB", "import jax, torch; jax.devices(); x = torch.zeros(2**30)", "%gpu")

    assert "PyTorch allocated 1.0  peak 1.0  reserved 1.0  limit 4.0 GiB" in answer.value
    assert "JAX in use 0.0  peak 4.0  limit 4.0 GiB" in answer.value


@pytest.mark.parametrize(
    "lines",
    [("%%gpu isolate limit 2GiB\n",), ("%gpu limit 2GiB", "%%tf_gpu isolate\n")],
    ids=["the cell's own words", "the notebook's"],
)
def test_an_isolated_cell_has_the_limit_in_every_framework(lines: tuple[str, ...]) -> None:
    *_, answer = seen(*lines[:-1], f"{lines[-1]}import torch\ntorch.zeros(3 * 2**30)")

    assert answer.error == "OutOfMemoryError"


def test_tensorflow_that_keras_imports_beside_jax_is_kept_from_the_gpu() -> None:
    sources = "%gpu limit 4GiB", "import jax; jax.devices(); import tensorflow as tf; x = tf.zeros(1000)"
    given, taken = seen_and_held(*sources, KERAS_BACKEND="jax")

    assert "Keras computes with jax here and may import TensorFlow too, which is kept from the GPUs" in given[0].value
    assert round(taken[0] / MIB) == (4 * GIB + CONTEXT) // MIB


@pytest.mark.parametrize("first", ["import tensorflow as tf; tf.zeros(1)", "x = 1"])
def test_a_configured_policy_holds_for_a_framework_that_is_imported_after_it(first: str) -> None:
    given, _ = seen_and_held(first, "import torch; x = torch.zeros(3 * 2**30)", TFGPU_POLICY="limit 2GiB")

    assert given[1].error == "OutOfMemoryError"


@pytest.mark.parametrize(
    "cells",
    [
        ("import torch; x = torch.zeros(3 * 2**30)",),
        ("%tf_gpu limit 1GiB", "import torch; x = torch.zeros(3 * 2**30)"),
        ("%gpu default", "import torch; x = torch.zeros(3 * 2**30)"),
        ("%gpu limit 6GiB",),
    ],
)
def test_no_framework_passes_the_ceiling(cells: tuple[str, ...]) -> None:
    given, _ = seen_and_held(*cells, TFGPU_CEILING="limit 2GiB")

    assert given[-1].error in ("OutOfMemoryError", "UsageError")


def under_a_ceiling_too_late(*sources: str) -> tuple[str, list[Seen], list[int]]:
    """Have JAX and PyTorch use a GPU, load the extension under a ceiling, and run cells; return what loading said."""
    sys.path.insert(0, STAND_IN)
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


def test_a_framework_that_the_ceiling_holds_is_not_called_free() -> None:
    with Machine.create("1x16GiB") as machine:
        given, _ = run(
            machine,
            beside_stand_ins,
            "import torch",
            "%tf_gpu limit 1GiB",
            env={"TFGPU_CEILING": "limit 2GiB"},
            imported=False,
        )

    assert "PyTorch takes up to 2 GiB of GPU 0" in given[1].value
    assert "left free" not in given[1].value


def test_what_holds_is_said_with_the_gpus_that_were_chosen() -> None:
    (answer,) = seen("%gpu visible 1; limit 4GiB")

    assert "`visible 1; limit 4GiB` holds for TensorFlow, PyTorch and JAX, from first use on." in answer.value


def test_nor_does_what_jax_takes_when_it_starts() -> None:
    _, taken = seen_and_held("%gpu growth off", "import jax; jax.devices()", TFGPU_CEILING="limit 2GiB")

    assert round(taken[0] / MIB) == (2 * GIB + CONTEXT) // MIB


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


def test_a_word_for_tensorflow_alone_is_refused_above_a_cell_for_every_framework() -> None:
    (answer,) = seen("%%gpu isolate split 2\nx = 1")

    assert "Only TensorFlow has logical GPUs" in answer.text


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
    install = f"import sys; sys.path.insert(0, {STAND_IN!r})"
    with Machine.create("1x16GiB") as machine:
        given: list[Seen] = run(machine, cells, line, install, TAKES.format(3), env=env, imported=False)

    assert given[-1].error == OOM


def test_a_configured_policy_of_pytorch_alone_is_promised() -> None:
    promised = "from tfgpu_magic.config import self_report; [use.limit for use in self_report.brief().uses]"
    with Machine.create("1x16GiB") as machine:
        given, _ = run(
            machine, beside_stand_ins, "import torch", promised, env={"TFGPU_POLICY": "limit 2GiB"}, imported=False
        )

    assert given[-1].text.endswith(f"[{2 * GIB}]\n")
