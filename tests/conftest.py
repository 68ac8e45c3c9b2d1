"""What holds for every test: no board and no settings but its own, and Ctrl-C is heard."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

# A machine that runs other tests beside has no deadlines, and CI looks at other examples each time.
settings.register_profile("here", deadline=None, derandomize=False, print_blob="CI" in os.environ)
settings.load_profile("here")


@pytest.fixture(autouse=True, scope="session")
def interrupts() -> None:
    """Ctrl-C is not ignored: a shell that starts the tests in the background has all their programs ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A directory for boards that is not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFGPU_MAGIC_DIR", str(tmp_path_factory.mktemp("board", numbered=False) / "board"))
        yield


@pytest.fixture(autouse=True, scope="session")
def settings_of_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """IPython and Jupyter without what whoever runs the tests has configured, and without a trace in their history."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        yield
