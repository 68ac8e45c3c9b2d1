"""PyTorch's build for CUDA on the simulated machine: a limit, and parking; `scripts/torch` has the environment."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks import cuda_torch
from tests.processes import run
from tests.sizes import LITTLE, MIB
from tfgpu_magic.parking.frameworks import UNREADABLE
from tfgpu_magic.simgpu import Machine

pytestmark = pytest.mark.frameworks


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the path on which PyTorch finds the libraries that the machine lacks."""
    torch, folder = importlib.util.find_spec("torch"), tmp_path_factory.mktemp("nvidia")
    there = Path(torch.origin or "").parent if torch else Path()
    if not (there / "lib" / "libc10_cuda.so").exists():
        pytest.skip("PyTorch's build for CUDA is not here: scripts/torch has it")
    cuda_torch.make(there, folder)
    return str(folder)


def on_machine(path: str, function: Callable[[], Any]) -> Any:
    """Return what a function returns on a machine with two GPUs."""
    with Machine.create("2x8GiB") as machine:
        path = f"{path}{os.pathsep}{machine.environ()['LD_LIBRARY_PATH']}"
        return run(machine, function, env={"LD_LIBRARY_PATH": path}, fresh=True)


@pytest.fixture(scope="module")
def found(path: str) -> Any:
    """Return what was found at each of PyTorch's steps."""
    return on_machine(path, cuda_torch.steps)


def test_tensors_of_every_kind_go_to_host_memory_and_come_back_fifty_times(path: str) -> None:
    found = on_machine(path, cuda_torch.parked)
    before, away, after = found["held"]

    assert found["storages"] > 200
    assert found["sizes"] == {0}
    assert found["same"] == {(True, True, True)}  # the bytes, the allocator's stream, and the device
    assert found["after"]
    assert found["current"] == 0
    for gpu in range(2):
        assert away[gpu] in LITTLE
        assert before[gpu] - away[gpu] >= 17 * MIB
        assert after[gpu] - away[gpu] >= 17 * MIB


def test_what_was_emptied_cannot_be_used_in_any_way_without_the_gpu(path: str) -> None:
    assert on_machine(path, cuda_torch.unreadable) == [UNREADABLE] * 15


def test_a_limit_holds_from_the_first_use_on(found: Any) -> None:
    assert found["under the limit"] == ["taken", "no room"]


def test_a_limit_moves_no_current_gpu_and_makes_no_context(found: Any) -> None:
    assert found["GPU and contexts"] == (0, 1)


def test_the_figures_are_pytorchs_own(found: Any) -> None:
    assert found["figures"] == [1024, 1024, 1024, 2048]


def test_a_look_moves_no_current_gpu_and_makes_no_context(found: Any) -> None:
    assert found["GPU and contexts after a look"] == (0, 1)


def test_another_gpu_is_held_from_the_end_of_the_cell_that_used_it(found: Any) -> None:
    assert (found["another GPU"], found["another GPU after its cell"]) == ("taken", "no room")


def test_without_a_limit_it_takes_more(found: Any) -> None:
    assert found["without a limit"] == "taken"


def test_its_own_reading_of_a_fraction_moves_the_current_gpu_before_2_10_and_not_since(found: Any) -> None:
    current, _ = found["GPU and contexts after a fraction"]

    assert current == (1 if found["version"] < (2, 10) else 0)
