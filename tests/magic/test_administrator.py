"""An administrator's policy never falls to nothing: real TensorFlow under it, judged by the driver's account.

It is there in the kernels of a real Jupyter Server too, and outlives trouble at TensorFlow's import.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from unittest import mock

import pytest

from tests.jupyter import configure, execute, serving
from tests.magic.shell import cells, loading
from tests.processes import run
from tests.sizes import CONTEXT, GIB, LITTLE, MIB
from tests.tf.on_machine import held, touch_every_gpu
from tests.waiting import until
from tfgpu_magic.errors import Refused
from tfgpu_magic.simgpu import Machine

LIMIT = int(0.4 * 8 * 1024) * MIB + CONTEXT
LIMITED, NONE = range(LIMIT, LIMIT + 1), range(1)
SEVEN = "visible 0,1,2,3,4,5,6"


@pytest.mark.parametrize(
    ("gpus", "full", "policy", "told", "holds"),
    [
        ("8x8GiB", ["7.8GiB@7"], "growth", f"`{SEVEN}; growth` is in force instead", [LITTLE] * 7 + [NONE]),
        ("8x8GiB", ["7.8GiB@7"], "limit 40%", f"`{SEVEN}; limit 40%` is in force instead", [LIMITED] * 7 + [NONE]),
        ("8x8GiB", ["7.8GiB@7"], "limti 40%", "Did you mean 'limit'?", [LITTLE] * 7 + [NONE]),
        ("2x8GiB", ["5GiB@1"], "limit 60%", "`limit 60%`, from $TFGPU_POLICY, cannot be had in full", [LITTLE] * 2),
        pytest.param(
            *("2x8GiB", ["7.8GiB@0", "7.8GiB@1"], "limit 40%", "`visible none; limit 40%` is in force instead"),
            [NONE] * 2,
            marks=pytest.mark.smoke,
        ),
    ],
)
def test_where_it_cannot_be_had_in_full_the_nearest_that_can_holds_and_is_told(
    gpus: str, full: list[str], policy: str, told: str, holds: list[range]
) -> None:
    with Machine.create(gpus) as machine:
        for neighbour in full:
            machine.add_neighbour(neighbour)
        said, sizes = run(machine, _use_every_gpu, env={"TFGPU_POLICY": policy}, imported=False)

    assert told in said
    assert f"GPU {', '.join(one[-1] for one in full)}: " in said
    assert [size in expected for size, expected in zip(sizes, holds, strict=True)] == [True] * len(sizes)


def test_on_eight_gpus_of_which_one_is_lost_the_others_are_used_as_the_policy_says() -> None:
    with Machine.create("8x8GiB") as machine:
        machine.lose(3)
        said, sizes = run(machine, _use_every_gpu, env={"TFGPU_POLICY": "limit 40%"}, imported=False)

    assert "NOT in force" not in said
    assert sizes == [LIMIT] * 3 + [0] + [LIMIT] * 4


def test_what_holds_is_decided_when_tensorflow_is_imported_an_hour_after_the_kernels_start() -> None:
    with Machine.create("2x8GiB") as machine:
        said, sizes = run(machine, _use_an_hour_later, env={"TFGPU_POLICY": "limit 40%"}, imported=False)

    assert "`visible 0; limit 40%` is in force instead" in said
    assert "GPU 1: " in said
    assert sizes == [LIMIT, 0]


def test_a_policy_that_can_be_had_is_not_spoken_of() -> None:
    with Machine.create("8x8GiB") as machine:
        machine.add_neighbour("7.8GiB@7")
        said, sizes = run(machine, _use_every_gpu, env={"TFGPU_POLICY": "pick; growth"}, imported=False)

    assert said == ""
    assert sorted(sizes)[:7] == [0] * 7
    assert max(sizes) in LITTLE
    assert sizes[7] == 0


def test_a_driver_that_is_slow_to_start_is_waited_for() -> None:
    with Machine.create("8x8GiB") as machine:
        machine.add_neighbour("7.8GiB@7")
        machine.hang("nvmlInit", 5)
        said, sizes = run(machine, _use_every_gpu, env={"TFGPU_POLICY": "limit 40%"}, imported=False)

    assert "Waiting for the NVIDIA driver" in said
    assert sizes == [LIMIT] * 7 + [0]


@pytest.mark.parametrize("words", ["limit 1GiB", "pick", "split 2"])
def test_words_wait_for_a_driver_that_is_slow_to_start(words: str) -> None:
    with Machine.create("2x8GiB") as machine:
        machine.hang("nvmlInit", 5)
        first, again = run(machine, _say, f"%tf_gpu {words}", f"%tf_gpu {words}")

    assert first.startswith("Waiting for the NVIDIA driver, which is slow to answer…")
    assert "Not applied" not in first + again


def test_what_does_not_fit_at_the_start_of_a_kernel_and_does_at_the_import_is_in_force() -> None:
    with Machine.create("1x8GiB") as machine:
        said, sizes = run(machine, _use_after_a_neighbour, env={"TFGPU_POLICY": "limit 40%"}, imported=False)

    assert (said, sizes) == ("", [LIMIT])


@pytest.mark.smoke
def test_words_of_the_user_outweigh_it() -> None:
    with Machine.create("2x8GiB") as machine:
        machine.add_neighbour("7.8GiB@1")
        env = {"TFGPU_POLICY": "limit 40%"}
        _, sizes = run(machine, _use_every_gpu, "%tf_gpu limit 1GiB", env=env, imported=False)

    assert sizes == [GIB + CONTEXT, 0]


def test_what_is_asked_for_with_a_restart_is_what_can_be_had_then() -> None:
    with Machine.create("2x8GiB") as machine:
        machine.add_neighbour("7.8GiB@1")
        asked, refusal = run(machine, _foresee_under_what_it_fell_to, env={"TFGPU_POLICY": "visible 0,1; growth"})

    assert asked == "visible 0; limit 2GiB"
    assert "Fits after a restart:" in refusal


def test_what_waits_and_cannot_be_had_in_full_refuses_no_code() -> None:
    with Machine.create("2x8GiB") as machine:
        (said,) = run(machine, _say, "%tf_gpu code limit 2GiB", env={"TFGPU_POLICY": "visible 0,1,2,3; growth"})

    assert "import tensorflow" in said


def test_it_holds_where_words_of_the_user_cannot_be_told_to_tensorflow() -> None:
    with Machine.create("2x8GiB") as machine:
        said, sizes = run(machine, _use_with_a_broken_plan, env={"TFGPU_POLICY": "growth"}, imported=False)

    assert "`limit 1GiB` is NOT in force: Not applied. TensorFlow did not take it: today not" in said
    assert all(size in LITTLE for size in sizes)


@pytest.mark.parametrize(("policy", "sizes"), [("visible 1; limit 1GiB", [0, GIB + CONTEXT]), ("pick; growth", None)])
def test_an_import_that_was_interrupted_does_not_lose_it(policy: str, sizes: list[int] | None) -> None:
    with Machine.create("2x8GiB") as machine:
        error, found, _ = run(
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


@pytest.mark.parametrize(
    ("env", "told", "holds"),
    [
        (
            {"TFGPU_POLICY": "visible 1; limit 1GiB"},
            "`visible 1; growth` is in force instead.\ntoday not",
            [NONE, LITTLE],
        ),
        ({"TFGPU_CEILING": "limit 40%"}, "`visible none` is in force instead", [NONE, NONE]),
    ],
)
def test_where_the_gpus_cannot_be_looked_at_the_least_of_it_holds_and_nobody_is_said_to_have_changed_it(
    env: dict[str, str], told: str, holds: list[range]
) -> None:
    with Machine.create("2x8GiB") as machine:
        said, sizes, status = run(machine, _import_with_a_look_that_fails, ValueError, env=env, imported=False)

    assert told in said
    assert [size in expected for size, expected in zip(sizes, holds, strict=True)] == [True, True]
    assert "In force: `visible " in status
    assert "changed" not in status


def test_a_cuda_context_of_another_library_keeps_no_policy_from_tensorflow() -> None:
    with Machine.create("2x8GiB") as machine:
        said, sees, growth = run(
            machine, _import_beside_a_context, env={"TFGPU_POLICY": "visible 1; growth"}, imported=False
        )

    assert said == ""  # it is in force in full
    assert (sees, growth) == (["/physical_device:GPU:1"], "true")


def test_gpus_that_tensorflow_does_not_let_us_hide_any_more_are_told() -> None:
    with Machine.create("1x8GiB") as machine:
        said, sizes = run(machine, _load_blindly_when_tensorflow_uses_the_gpus, env={"TFGPU_CEILING": "limit 40%"})

    assert "GPUs that are to be hidden from TensorFlow are not: Not applied. TensorFlow did not take it: " in said
    assert "Memory growth under the ceiling is NOT in force.\ntoday not" in said
    assert "is in force instead" not in said
    assert all(sizes)


def test_kernels_opened_before_any_tensorflow_pick_a_gpu_each(tmp_path: Path) -> None:
    configure(tmp_path, policy="pick; growth")
    with Machine.create("4x8GiB") as machine, serving(machine, tmp_path) as server:
        clients = [server.connect(server.call("kernels", {"name": "python3"})["id"]) for _ in range(4)]
        pids = [int(execute(client, "import os; print(os.getpid())")) for client in clients]
        for client in clients:  # all at once
            client.execute("import tensorflow as tf; x = tf.constant(1.0)")
        until(lambda: all(machine.held(pid=pid) for pid in pids), seconds=120)
        sizes = [[machine.held(pid=pid, gpu=gpu) > 0 for gpu in range(4)] for pid in pids]
        for client in clients:
            client.stop_channels()

    assert sorted(sizes) == [[n == gpu for n in range(4)] for gpu in (3, 2, 1, 0)]


@pytest.mark.parametrize("policy", ["limti 4GiB", "growth"])
def test_only_what_cannot_be_had_is_told_in_the_first_cell_and_in_the_servers_log(tmp_path: Path, policy: str) -> None:
    configure(tmp_path, policy=policy)
    with Machine.create("1x8GiB") as machine, serving(machine, tmp_path) as server:
        client = server.connect(server.call("kernels", {"name": "python3"})["id"])
        told, again = execute(client, "pass"), execute(client, "pass")
        client.stop_channels()
        log = server.log.read_text()

    file = tmp_path / ".ipython" / "profile_default" / "ipython_config.py"
    wrong = f"`{policy}`, from the configuration ({file}), is NOT in force" if policy != "growth" else ""
    assert wrong in told
    assert wrong in log
    assert bool(told) == bool(wrong)
    assert again == ""


def _use_every_gpu(*lines: str) -> tuple[str, list[int]]:
    """Return what is said from loading the extension to TensorFlow's import, but for answers, and what is held."""
    seen = loading(*lines, "import tensorflow")
    touch_every_gpu()
    return seen[0].text + seen[-1].text, held()


def _say(*lines: str) -> list[str]:
    return [seen.text for seen in cells(*lines)]


def _foresee_under_what_it_fell_to() -> tuple[str, str]:
    from tfgpu_magic.engine import engine

    _use_every_gpu()
    with pytest.raises(Refused) as refused:
        engine.foresee("limit 7.9GiB")
    return str(engine.foresee("limit 2GiB").asked), str(refused.value)


def _use_an_hour_later() -> tuple[str, list[int]]:
    """Load the extension, have a neighbour come, put the clocks forward by an hour, and import TensorFlow."""
    machine = Machine.current()
    assert machine is not None
    loaded = loading("%tf_gpu plan")
    machine.add_neighbour("7.8GiB@1")
    clocks = {name: getattr(time, name) for name in ("time", "monotonic")}
    with contextlib.ExitStack() as later:
        for name, clock in clocks.items():
            later.enter_context(mock.patch.object(time, name, lambda clock=clock: clock() + 3600.0))
        imported = cells("import tensorflow")
    touch_every_gpu()
    return loaded[0].text + imported[0].text, held()


def _use_after_a_neighbour() -> tuple[str, list[int]]:
    machine = Machine.current()
    assert machine is not None
    neighbour = machine.add_neighbour("7GiB@0")
    loaded = loading()
    neighbour.stop()
    imported = cells("import tensorflow")
    touch_every_gpu()
    return loaded[0].text + imported[0].text, held()


def _use_with_a_broken_plan() -> tuple[str, list[int]]:
    from tfgpu_magic.frameworks.tensorflow import devices

    cells("%tf_gpu limit 1GiB")
    write, calls = devices.write, []

    def once_not(settings: devices.DeviceSettings) -> None:
        calls.append(settings)
        if len(calls) == 1:
            raise ValueError("today not")
        write(settings)

    with mock.patch.object(devices, "write", once_not):
        imported = cells("import tensorflow")
    touch_every_gpu()
    return imported[0].text, held()


def _import_with_a_look_that_fails(error: type[BaseException]) -> tuple[str, list[int], str]:
    from tfgpu_magic.engine import enforcement

    cells("pass")
    with mock.patch.object(enforcement, "look_well", side_effect=error("today not")):
        imported = cells("import tensorflow")[0]
    cells("import tensorflow")
    touch_every_gpu()
    return imported.error or imported.text, held(), cells("%tf_gpu")[0].text


def _import_with_a_write_that_is_interrupted() -> tuple[str, list[int]]:
    from tfgpu_magic.frameworks.tensorflow import devices

    cells("%tf_gpu limit 1GiB")
    with mock.patch.object(devices, "read", side_effect=KeyboardInterrupt):
        error = cells("import tensorflow")[0].error
    cells("import tensorflow")
    touch_every_gpu()
    return error, held()


def _load_blindly_when_tensorflow_uses_the_gpus() -> tuple[str, list[int]]:
    from tfgpu_magic.engine import enforcement

    touch_every_gpu()
    with mock.patch.object(enforcement, "look_well", side_effect=ValueError("today not")):
        return loading()[0].text, held()


def _import_beside_a_context() -> tuple[str, list[str], str]:
    import ctypes
    import os

    cells("pass")
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuInit(0)
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)  # as another library does
    said = cells("import tensorflow")[0].text
    import tensorflow as tf

    return said, [gpu.name for gpu in tf.config.get_visible_devices("GPU")], os.environ["TF_FORCE_GPU_ALLOW_GROWTH"]
