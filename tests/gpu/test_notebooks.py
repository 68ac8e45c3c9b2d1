"""Notebooks of a real Jupyter Server on a real NVIDIA GPU: run with ``pytest -m gpu``. They need TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

import tfgpu_magic
from tests.jupyter import Notebook, Server, serving
from tests.lab.users import acting, root_only
from tests.scripts.test_two_notebooks import followed
from tests.server.streaming import rows, streaming
from tests.simgpu.on_machine import allocate
from tests.sizes import GIB, MIB
from tfgpu_magic.policy.memory import context_bytes

NOBODY = 65534

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed"),
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(None, tmp_path) as made:
        yield made


def used() -> int:
    """Return what is used of all GPUs."""
    return sum(gpu.used or 0 for gpu in tfgpu_magic.look(60.0).gpus)


def listed() -> set[int]:
    """Return the pids of the processes that the driver lists."""
    return {row.pid for row in tfgpu_magic.look(60.0).processes}


def test_two_notebooks_have_room_after_the_three_steps_of_the_readme(server: Server) -> None:
    failed, seen, _, third = followed(server, lambda pid: pid in listed())

    assert re.search("OOM|RESOURCE_EXHAUSTED|OUT_OF_MEMORY|out of memory", failed)
    assert "first.ipynb" in seen
    assert "Not applied" in third
    assert "Fits now:\n  %tf_gpu pick; limit" in third


def test_the_reason_of_an_error_stands_below_it(server: Server) -> None:
    notebook = Notebook(server, "first.ipynb")
    notebook.run("%load_ext tfgpu_magic\n%tf_gpu pick; limit 2GiB")
    failed = notebook.run("import tensorflow as tf; x = tf.zeros([3, 1024, 1024, 256])")

    assert "OOM when allocating tensor" in failed
    assert "would fit" in failed


def test_an_isolated_cell_gives_its_memory_back_and_its_notebook_holds_nothing(server: Server) -> None:
    before, notebook = used(), Notebook(server, "first.ipynb")
    notebook.run("%load_ext tfgpu_magic")
    notebook.run(
        "%%tf_gpu isolate -o total,pid limit 4GiB\n"
        "import os, tensorflow as tf\ntotal, pid = float(tf.reduce_sum(tf.zeros([1024, 1024, 256]))), os.getpid()"
    )
    inside = int(notebook.run("print(pid)"))

    assert notebook.run("print(total)") == "0.0\n"
    assert inside != notebook.pid
    assert {notebook.pid, inside}.isdisjoint(listed())
    assert used() < before + 64 * MIB


@root_only
def test_the_server_shows_what_each_notebook_and_another_user_holds(server: Server) -> None:
    notebook = Notebook(server, "first.ipynb")
    notebook.run("%load_ext tfgpu_magic\n%tf_gpu pick; limit 2GiB")
    notebook.run("import tensorflow as tf; x = tf.zeros([1024, 1024, 64])")
    with acting(NOBODY, partial(allocate, GIB)) as other, streaming(server) as stream:
        state = stream.until(lambda state: {notebook.pid, other.pid} <= {row.get("pid") for row in rows(state)}, 30)
    mine, theirs = ({row.get("pid"): row for row in rows(state)}[pid] for pid in (notebook.pid, other.pid))

    assert (mine["who"], mine["owner"]) == ("mine", "first.ipynb")
    assert 2 * GIB < mine["held"] < 2 * GIB + context_bytes(tfgpu_magic.look(60.0).gpus[0].total or 0)
    assert (theirs["who"], theirs["owner"]) == ("other", "nobody")
    assert GIB < theirs["held"] < 2 * GIB
