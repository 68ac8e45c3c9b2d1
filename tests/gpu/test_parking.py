"""Parking on a real NVIDIA GPU, in notebooks of a real Jupyter Server: run with ``pytest -m gpu``.

A notebook takes 1 GiB of the first GPU and as much host memory, and touches nothing of others.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import tfgpu_magic
from tests.jupyter import Notebook, Server, serving
from tests.sizes import MIB

pytestmark = pytest.mark.gpu

TENSORFLOW = """
%load_ext tfgpu_magic
%tf_gpu visible 0; growth --release
import hashlib, numpy as np, tensorflow as tf
with tf.device("GPU:0"):
    weights = tf.Variable(np.random.default_rng(1).random(2**27, "float32"))
step = tf.function(lambda: weights - 0.1 * weights)
def learn():
    weights.assign(step())
def digest(array):
    return hashlib.sha256(array.numpy().tobytes()).hexdigest()
"""
PYTORCH = """
%load_ext tfgpu_magic
import ctypes, hashlib, torch
weights = torch.rand(2**27).to("cuda:0")
row = weights[1000:]
def step():
    return weights - 0.1 * weights
def learn():
    row.copy_(step()[1000:])
    weights[:1000] = step()[:1000]
def digest(tensor):
    host = tensor.cpu()
    return hashlib.sha256(ctypes.string_at(host.data_ptr(), host.nbytes)).hexdigest()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(None, tmp_path) as made:
        yield made


def held(notebook: Notebook) -> int | None:
    """Return what NVML accounts to a notebook; None where the driver does not list it, as in some containers."""
    return next((one.held for one in tfgpu_magic.look(60.0).processes if one.pid == notebook.pid), None)


@pytest.mark.parametrize(("package", "begin"), [("tensorflow", TENSORFLOW), ("torch", PYTORCH)])
def test_a_parked_notebook_comes_back_bit_for_bit_and_computes_what_it_would_have(
    server: Server, package: str, begin: str
) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    notebook = Notebook(server, "parks.ipynb")
    weights, learnt = notebook.run(f"{begin}print(digest(weights), digest(step()))").split()[-2:]
    for _ in range(2):
        before = held(notebook)
        assert "Parked in" in notebook.run("%tf_gpu park")
        away = held(notebook)
        assert notebook.run("print(digest(weights), digest(step()))").split() == [weights, learnt]
        if before is not None and away is not None:
            assert before - away > 512 * MIB - 64 * MIB

    assert notebook.run("learn(); print(digest(weights))").split() == [learnt]
