"""PyTorch's build for CUDA on the simulated machine: a limit, and parking; `scripts/torch` has the environment."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

from tests.frameworks import cuda_torch
from tests.jupyter import execute
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


def found_first(machine: Machine, path: str) -> dict[str, str]:
    """Return what has a process look for libraries there, and then among the machine's."""
    return {"LD_LIBRARY_PATH": f"{path}{os.pathsep}{machine.environ()['LD_LIBRARY_PATH']}"}


def on_machine(path: str, function: Callable[..., Any], *args: Any, gpus: str = "2x8GiB") -> Any:
    """Return what a function returns on a machine."""
    with Machine.create(gpus) as machine:
        return run(machine, function, *args, env=found_first(machine, path), fresh=True)


@pytest.mark.parametrize(("cycles", "part"), [(50, 0.0), (2, 0.6)])
def test_tensors_of_every_kind_go_to_host_memory_and_come_back(path: str, cycles: int, part: float) -> None:
    found = on_machine(path, cuda_torch.parked, cycles, part, gpus="2x128GiB")
    before, away, after = found["held"]

    assert found["storages"] > 200
    assert found["sizes"] == {0}
    assert found["same"] == {(True, True, True)}  # the bytes, the allocator's stream, and the device
    assert found["after"]
    assert found["current"] == 0
    (files, threads, size), (files_after, threads_after, size_after) = (found["kept"][one] for one in (cycles // 5, -1))
    assert (files_after, threads_after) == (files, threads)
    assert size_after - size < 64 * MIB  # a copy that was kept each time would make 1,360
    for gpu in range(2):
        assert away[gpu] in LITTLE
        assert before[gpu] - away[gpu] >= 17 * MIB
        assert after[gpu] - away[gpu] >= 17 * MIB


BEGIN = """
%load_ext tfgpu_magic
import asyncio, os, threading, torch
from tests.frameworks.cuda_torch import content, fill
layers = [torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.Linear(512, 1)]
net = torch.nn.Sequential(*layers).cuda()
net[2].weight = net[0].weight
optimizer = torch.optim.AdamW(net.parameters())
rows = torch.utils.data.TensorDataset(torch.zeros(64, 512), torch.zeros(64, 1))
loader = torch.utils.data.DataLoader(rows, batch_size=16, num_workers=1)
def train():
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = (net(x.cuda()) - y.cuda()).pow(2).mean()
        loss.backward()
        optimizer.step()
    return x
batch = train()
kept = torch.empty(2**23, device="cuda")
views = [kept[9:99], kept.view(2**10, 2**13).t()]
def all_tensors():
    return [*net.parameters(), *views, *(one for state in optimizer.state.values() for one in state.values())]
fill(all_tensors())
before = content(all_tensors())
print(os.getpid())
"""
"""A notebook that has trained in mixed precision, with a DataLoader whose process has ended."""


def test_a_notebook_that_has_trained_is_parked_and_its_next_cell_finds_every_byte(path: str) -> None:
    with Machine.create("1x8GiB") as machine:
        environment = {**machine.environ(dict(os.environ)), **found_first(machine, path)}
        manager, client = start_new_kernel(env=environment)
        try:
            pid = int(execute(client, BEGIN).split()[-1])
            held = machine.held(pid=pid)
            for _ in range(2):
                said = execute(client, "%tf_gpu park")
                assert "PyTorch's memory without a tensor (8 MiB) stays: only C++ leads to it" in said, said  # cuBLAS's
                assert machine.held(pid=pid) in LITTLE
                assert held - machine.held(pid=pid) >= 32 * MIB
                assert execute(client, "print(content(all_tensors()) == before)") == "True\n"
            assert execute(client, "print(len(train()))") == "16\n"
            execute(client, "over = threading.Event(); thread = threading.Thread(target=over.wait, name='mine')")
            assert "mine. Stop them first." in execute(client, "thread.start()\n%tf_gpu park")
            execute(client, "over.set(); thread.join()")
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


def test_what_was_emptied_cannot_be_used_in_any_way_without_the_gpu(path: str) -> None:
    assert on_machine(path, cuda_torch.unreadable) == [str(UNREADABLE)] * 15


def test_a_keras_model_on_pytorch_is_parked_and_is_arrays_by_the_paths_of_its_variables(path: str) -> None:
    assert on_machine(path, cuda_torch.keras)


def test_a_limit_holds_from_the_first_use_on_and_moves_no_current_gpu_and_makes_no_context(path: str) -> None:
    found = on_machine(path, cuda_torch.steps)

    assert found["under the limit"] == ["taken", "no room"]
    assert found["GPU and contexts"] == found["GPU and contexts after a look"] == (0, 1)
    assert found["figures"] == [1024, 1024, 1024, 2048]
    assert (found["another GPU"], found["another GPU after its cell"]) == ("taken", "no room")
    assert found["without a limit"] == "taken"
    # Its own reading of a fraction moves the current GPU before 2.10, and not since.
    assert found["GPU and contexts after a fraction"][0] == (1 if found["version"] < (2, 10) else 0)
