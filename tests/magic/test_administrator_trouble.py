"""An administrator's policy outlives trouble at TensorFlow's import: interrupts, GPUs that cannot be looked at."""

from __future__ import annotations

from unittest import mock

import pytest

from tests.magic.shell import cells, loading
from tests.processes import run
from tests.sizes import CONTEXT, GIB, LITTLE
from tests.tf.on_machine import held, touch_every_gpu
from tfgpu_magic.simgpu import Machine


def test_it_holds_where_words_of_the_user_cannot_be_told_to_tensorflow() -> None:
    with Machine.create("2x8GiB") as machine:
        said, sizes = run(machine, _use_with_a_broken_plan, env={"TFGPU_POLICY": "growth"}, imported=False)

    assert "`limit 1GiB` is NOT in force: Not applied. TensorFlow did not take it: today not" in said
    assert all(size in LITTLE for size in sizes)


@pytest.mark.parametrize(("policy", "sizes"), [("visible 1; limit 1GiB", [0, GIB + CONTEXT]), ("pick; growth", None)])
def test_an_import_that_was_interrupted_does_not_lose_it(policy: str, sizes: list[int] | None) -> None:
    with Machine.create("2x8GiB") as machine:
        error, found = run(
            machine, _import_with_a_look_that_fails, KeyboardInterrupt, env={"TFGPU_POLICY": policy}, imported=False
        )

    assert error == "KeyboardInterrupt"
    assert found == sizes if sizes else sorted(size in LITTLE for size in found) == [False, True]


def test_words_that_wait_are_not_lost_to_an_import_that_was_interrupted() -> None:
    with Machine.create("1x8GiB") as machine:
        assert run(machine, _import_with_a_write_that_is_interrupted, imported=False) == (
            "KeyboardInterrupt",
            [GIB + CONTEXT],
        )


def test_where_the_gpus_cannot_be_looked_at_the_least_of_it_holds() -> None:
    with Machine.create("2x8GiB") as machine:
        env = {"TFGPU_POLICY": "visible 1; limit 1GiB"}
        said, sizes = run(machine, _import_with_a_look_that_fails, ValueError, env=env, imported=False)

    assert "cannot be had in full. `visible 1; growth` is in force instead.\ntoday not" in said
    assert [size in LITTLE for size in sizes] == [False, True]


def test_where_cuda_can_no_longer_be_told_no_gpu_is_promised() -> None:
    with Machine.create("2x8GiB") as machine:
        said, variables = run(
            machine, _import_beside_a_context, env={"TFGPU_POLICY": "visible 1; growth"}, imported=False
        )

    assert "cannot be had in full. `growth` is in force instead" in said
    assert variables == {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}


def test_gpus_that_tensorflow_does_not_let_us_hide_any_more_are_told() -> None:
    with Machine.create("1x8GiB") as machine:
        said, sizes = run(machine, _load_blindly_when_tensorflow_uses_the_gpus, env={"TFGPU_CEILING": "limit 40%"})

    assert "GPUs that are to be hidden from TensorFlow are not: Not applied. TensorFlow did not take it: " in said
    assert "`growth`, from the ceiling, is NOT in force.\ntoday not" in said
    assert "is in force instead" not in said
    assert all(sizes)


def test_what_holds_where_nobody_could_look_is_not_called_changed_by_others() -> None:
    with Machine.create("2x8GiB") as machine:
        status = run(machine, _status_after_a_blind_import, env={"TFGPU_POLICY": "visible 1; growth"}, imported=False)

    assert "In force: `visible 1; growth`" in status
    assert "changed" not in status


def _use_with_a_broken_plan() -> tuple[str, list[int]]:
    from tfgpu_magic.config.runtime import devices

    cells("%tf_gpu limit 1GiB")
    write, calls = devices.write, []

    def once_not(settings: devices.Settings) -> None:
        calls.append(settings)
        if len(calls) == 1:
            raise ValueError("today not")
        write(settings)

    with mock.patch.object(devices, "write", once_not):
        imported = cells("import tensorflow")
    touch_every_gpu()
    return imported[0].text, held()


def _import_with_a_look_that_fails(error: type[BaseException]) -> tuple[str, list[int]]:
    from tfgpu_magic import administrator

    cells("pass")
    with mock.patch.object(administrator, "look_well", side_effect=error("today not")):
        imported = cells("import tensorflow")[0]
    cells("import tensorflow")
    touch_every_gpu()
    return imported.error or imported.text, held()


def _import_with_a_write_that_is_interrupted() -> tuple[str, list[int]]:
    from tfgpu_magic.config.runtime import devices

    cells("%tf_gpu limit 1GiB")
    with mock.patch.object(devices, "read", side_effect=KeyboardInterrupt):
        error = cells("import tensorflow")[0].error
    cells("import tensorflow")
    touch_every_gpu()
    return error, held()


def _load_blindly_when_tensorflow_uses_the_gpus() -> tuple[str, list[int]]:
    from tfgpu_magic import administrator

    touch_every_gpu()
    with mock.patch.object(administrator, "look_well", side_effect=ValueError("today not")):
        return loading()[0].text, held()


def _import_beside_a_context() -> tuple[str, dict[str, str]]:
    import ctypes
    import os

    from tfgpu_magic.config.process_state import VARIABLES

    cells("pass")
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuInit(0)
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)  # as another library does
    said = cells("import tensorflow")[0].text
    return said, {name: os.environ[name] for name in VARIABLES if name in os.environ}


def _status_after_a_blind_import() -> str:
    _import_with_a_look_that_fails(ValueError)
    return cells("%tf_gpu")[0].text
