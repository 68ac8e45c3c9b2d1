"""A Jupyter Server on the simulated machine of a module's tests, and a kernel of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jupyter import Server, serving
from tests.processes import QUIET
from tfgpu_magic.simgpu import Machine


@pytest.fixture(scope="module")
def server(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(machine, tmp_path_factory.mktemp("home"), environment=QUIET) as server:
        yield server


@pytest.fixture
def kernel(server: Server) -> Iterator[str]:
    kernel = server.call("kernels", {"name": "python3"})["id"]
    yield kernel
    server.delete(f"api/kernels/{kernel}")
