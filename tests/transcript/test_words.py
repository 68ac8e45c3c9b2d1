"""What users read of each word, of `tfgpu` and of answers to mistakes is what `tests/transcript.txt` has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcript import scenes
from tests.transcript.kept import compare
from tests.transcript.stage import play


@pytest.mark.parametrize("part", scenes.WORDS)
def test_users_read_what_they_did(part: str, tmp_path: Path) -> None:
    compare(part, play(scenes.WORDS[part], tmp_path))
