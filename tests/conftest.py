"""What holds for every test: no board but its own, and Ctrl-C is heard."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


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
