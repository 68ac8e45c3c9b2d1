"""What holds for every test: no board but its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True, scope="session")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A directory for boards that is not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFGPU_MAGIC_DIR", str(tmp_path_factory.mktemp("board", numbered=False) / "board"))
        yield
