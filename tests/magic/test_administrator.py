"""An administrator's policy never falls to nothing: real TensorFlow under it, judged by the driver's account.

It is there in the kernels of a real Jupyter Server too, and outlives trouble at TensorFlow's import.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.jupyter import configure, execute, serving
from tests.magic.cells import IMPORT, NOT, Cells, in_a_process
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

TOUCH = "from tests.tf.on_machine import touch_every_gpu; touch_every_gpu(); print(mib())"
SEVEN = "visible 0,1,2,3,4,5,6"
GROWTH, LIMIT = "258", str(int(0.4 * 8 * 1024) + 256)
"""MiB that TensorFlow holds of a GPU of 8 GiB under growth, and under a limit of 40%, with its context."""

LATER = """import time
clocks = {name: getattr(time, name) for name in ("time", "monotonic")}
for name, clock in clocks.items(): setattr(time, name, lambda clock=clock: clock() + 3600.0)"""
BACK = "for name, clock in clocks.items(): setattr(time, name, clock)"
FULL = "from tfgpu_magic.simgpu import Machine; neighbour = Machine.current().add_neighbour('7.8GiB@1')"
CONTEXT = """import ctypes
driver = ctypes.CDLL("libcuda.so.1")
driver.cuInit(0)
driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)"""
SEES = "[gpu.name for gpu in tf.config.get_visible_devices('GPU')], os.environ['TF_FORCE_GPU_ALLOW_GROWTH']"
FORESEEN = """from tfgpu_magic.engine import engine
print(engine.foresee('limit 2GiB').asked)
engine.foresee('limit 7.9GiB')"""


def failing(module: str, name: str, error: str) -> str:
    """Return a cell after which a function fails at its next call, and at no later one."""
    return f"""from tfgpu_magic.{module.rpartition(".")[0]} import {module.rpartition(".")[2]} as module
well = module.{name}
def once(*arguments):
    module.{name} = well
    raise {error}
module.{name} = once"""


LOOK = "engine.enforcement", "look_well"
TODAY_NOT = "ValueError('today not')"


def held(*sizes: str) -> tuple[str, str]:
    """Return a cell that uses each GPU, with what is held then, in MiB."""
    return TOUCH, f"[{', '.join(sizes)}]"


def policy(words: str) -> dict[str, str]:
    return {"TFGPU_POLICY": words}


def full(*gpus: int) -> Callable[[Machine], object]:
    return lambda machine: [machine.add_neighbour(f"7.8GiB@{gpu}") for gpu in gpus]


def half_full(machine: Machine) -> None:
    machine.add_neighbour("5GiB@1")


def lost(machine: Machine) -> None:
    machine.lose(3)


def slow(machine: Machine) -> None:
    machine.hang("nvmlInit", 5)


def slow_and_full(machine: Machine) -> None:
    full(7)(machine)
    slow(machine)


def well(_: Machine) -> None: ...


@pytest.mark.parametrize(
    ("gpus", "trouble", "words", "told", "holds"),
    [
        ("8x8GiB", full(7), "growth", f"`{SEVEN}; growth` is in force instead", [*[GROWTH] * 7, "0"]),
        ("8x8GiB", full(7), "limit 40%", f"`{SEVEN}; limit 40%` is in force instead", [*[LIMIT] * 7, "0"]),
        ("2x8GiB", half_full, "limit 60%", "`limit 60%`, from $TFGPU_POLICY, cannot be had in full", [GROWTH] * 2),
        pytest.param(
            *("2x8GiB", full(0, 1), "limit 40%", "`visible none; limit 40%` is in force instead", ["0", "0"]),
            marks=pytest.mark.smoke,
        ),
        ("8x8GiB", lost, "limit 40%", NOT + "NOT in force", [*[LIMIT] * 3, "0", *[LIMIT] * 4]),
        ("8x8GiB", slow_and_full, "limit 40%", "Waiting for the NVIDIA driver", [*[LIMIT] * 7, "0"]),
    ],
)
def test_where_it_cannot_be_had_in_full_the_nearest_that_can_holds_and_is_told(
    gpus: str, trouble: Callable[[Machine], object], words: str, told: str, holds: list[str]
) -> None:
    with Machine.create(gpus) as machine:
        trouble(machine)
        Cells((IMPORT, told), held(*holds), env=policy(words)).play(in_a_process(machine))


SCENES = {
    "one that is misspelt is told when the extension is loaded, and growth holds": (
        full(1),
        Cells(
            *((IMPORT, "`visible 0; growth` is in force instead"), held(GROWTH, "0")),
            loaded="Did you mean 'limit'?",
            env=policy("limti 40%"),
        ),
    ),
    "what holds is decided when TensorFlow is imported, an hour after the kernel's start": (
        well,
        Cells(
            *("%tf_gpu plan", FULL, LATER, (IMPORT, "`visible 0; limit 40%` is in force instead", "GPU 1: ")),
            *(BACK, held(LIMIT, "0")),
            env=policy("limit 40%"),
        ),
    ),
    "what is asked for with a restart is what can be had then": (
        full(1),
        Cells(
            *(IMPORT, TOUCH, (FORESEEN, "visible 0; limit 2GiB\n", "Fits after a restart:")),
            env=policy("visible 0,1; growth"),
        ),
    ),
    "what waits and cannot be had in full refuses no code": (
        well,
        Cells(("%tf_gpu code limit 2GiB", "import tensorflow"), env=policy("visible 0,1,2,3; growth")),
    ),
    "it holds where words of the user cannot be told to TensorFlow": (
        well,
        Cells(
            *("%tf_gpu limit 1GiB", failing("frameworks.tensorflow.devices", "write_settings", TODAY_NOT)),
            (IMPORT, "`limit 1GiB` is NOT in force: Not applied. TensorFlow did not take it: today not"),
            held(GROWTH, GROWTH),
            env=policy("growth"),
        ),
    ),
    "an import that was interrupted does not lose it": (
        well,
        Cells(
            *(failing(*LOOK, "KeyboardInterrupt"), (IMPORT, "KeyboardInterrupt"), IMPORT, held("0", "1280")),
            env=policy("visible 1; limit 1GiB"),
        ),
    ),
    "nor a choice that is to be made": (
        full(0),
        Cells(
            *(failing(*LOOK, "KeyboardInterrupt"), (IMPORT, "KeyboardInterrupt"), IMPORT, held("0", GROWTH)),
            env=policy("pick; growth"),
        ),
    ),
    "nor words that wait": (
        well,
        Cells(
            *("%tf_gpu limit 1GiB", failing("frameworks.tensorflow.devices", "read_settings", "KeyboardInterrupt")),
            *((IMPORT, "KeyboardInterrupt"), IMPORT, held("1280", "1280")),
        ),
    ),
    "where the GPUs cannot be looked at the least of it holds, and nobody is said to have changed it": (
        well,
        Cells(
            failing(*LOOK, TODAY_NOT),
            (IMPORT, "`visible 1; growth` is in force instead.\ntoday not"),
            *(held("0", GROWTH), ("%tf_gpu", "In force: `visible ", NOT + "changed")),
            env=policy("visible 1; limit 1GiB"),
        ),
    ),
    "which under a ceiling is no GPU": (
        well,
        Cells(
            *(failing(*LOOK, TODAY_NOT), (IMPORT, "`visible none` is in force instead"), held("0", "0")),
            ("%tf_gpu", "In force: `visible ", NOT + "changed"),
            env={"TFGPU_CEILING": "limit 40%"},
        ),
    ),
    "a CUDA context of another library keeps no policy from TensorFlow": (
        well,
        Cells(
            *(CONTEXT, (IMPORT, NOT + "tfgpu_magic"), (SEES, "(['/physical_device:GPU:1'], 'true')")),
            env=policy("visible 1; growth"),
        ),
    ),
    "a driver that is slow to start is waited for, with words": (
        slow,
        Cells(
            ("%tf_gpu limit 1GiB", "Waiting for the NVIDIA driver, which is slow to answer…", NOT + "Not applied"),
            ("%tf_gpu pick", NOT + "Not applied"),
        ),
    ),
    "also to divide GPUs": (
        slow,
        Cells(("%tf_gpu split 2", "Waiting for the NVIDIA driver, which is slow to answer…", NOT + "Not applied")),
    ),
}


@pytest.mark.parametrize(("trouble", "cells"), SCENES.values(), ids=SCENES)
def test_it_is_there_whatever_happens(trouble: Callable[[Machine], object], cells: Cells) -> None:
    with Machine.create("2x8GiB") as machine:
        trouble(machine)
        cells.play(in_a_process(machine))


def test_what_does_not_fit_at_the_start_of_a_kernel_and_does_at_the_import_is_in_force() -> None:
    with Machine.create("2x8GiB") as machine:
        play = in_a_process(machine)
        said = play(policy("limit 40%"), [FULL, "%load_ext tfgpu_magic", "neighbour.stop()", IMPORT, TOUCH])

    assert (said[1], said[3], said[4]) == ("", "", f"[{LIMIT}, {LIMIT}]\n")


@pytest.mark.smoke
def test_words_of_the_user_outweigh_it() -> None:
    with Machine.create("2x8GiB") as machine:
        full(1)(machine)
        Cells("%tf_gpu limit 1GiB", IMPORT, held("1280", "0"), env=policy("limit 40%")).play(in_a_process(machine))


def test_a_policy_that_can_be_had_is_not_spoken_of() -> None:
    with Machine.create("8x8GiB") as machine:
        full(7)(machine)
        loud = NOT + "tfgpu_magic"
        *_, sizes = Cells((IMPORT, loud), TOUCH, env=policy("pick; growth")).play(in_a_process(machine))

    assert sorted(sizes.strip(" []\n").split(", ")) == [*["0"] * 7, GROWTH]
    assert sizes.strip().endswith(" 0]")


def test_gpus_that_tensorflow_does_not_let_us_hide_any_more_are_told() -> None:
    before = f"import tensorflow as tf; {TOUCH}\n{failing(*LOOK, TODAY_NOT)}"
    late = "GPUs that are to be hidden from TensorFlow are not: Not applied. TensorFlow did not take it: "
    with Machine.create("1x8GiB") as machine:
        play = in_a_process(machine)
        held, loaded = play({"TFGPU_CEILING": "limit 40%"}, [before, "%load_ext tfgpu_magic"])

    assert late in loaded
    assert "Memory growth under the ceiling is NOT in force.\ntoday not" in loaded
    assert "is in force instead" not in loaded
    assert "[0]" not in held


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
