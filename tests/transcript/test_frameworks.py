"""What users of the real PyTorch and JAX read of `%gpu` is what `tests/transcript.txt` has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcript import scenes
from tests.transcript.kept import compare
from tests.transcript.stage import play

pytestmark = pytest.mark.frameworks


def test_users_of_the_real_frameworks_read_what_they_did(tmp_path: Path) -> None:
    compare("For the real PyTorch and JAX", play(scenes.REAL, tmp_path))
