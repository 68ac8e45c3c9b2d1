"""A Jupyter Server with the extension, for all tests of a module that do it no harm."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.jupyter import LEAN, Server, serving
from tests.machines import machine_of
from tfgpu_magic.simgpu import Machine

ROOT = Path(__file__).parents[2]
ENABLED = "--ServerApp.jpserver_extensions=tfgpu_magic.server=True"

Serve = Callable[..., Server]


machine = machine_of("2x16GiB")


@pytest.fixture(scope="module")
def serve(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Start servers, each with a home and a board of its own; all end with the module."""
    with ExitStack() as stack:

        def start(*options: str, strangers: bool = False, **more: Any) -> Server:
            access = f"--ServerApp.allow_unauthenticated_access={strangers}"
            home = tmp_path_factory.mktemp(f"home-{secrets.token_hex(2)}")
            # A kernel finds the tests, which hold memory for it.
            environment = {"TFGPU_MAGIC_DIR": str(home / "board"), "PYTHONPATH": f"{ROOT}:{LEAN}"}
            if config := more.pop("config", ""):
                (home / ".jupyter").mkdir()
                (home / ".jupyter" / "jupyter_server_config.py").write_text(config)
            server = serving(machine, home, options=[ENABLED, access, *options], environment=environment, **more)
            return stack.enter_context(server)

        yield start


@pytest.fixture(scope="module")
def server(serve: Serve) -> Server:
    return serve()
