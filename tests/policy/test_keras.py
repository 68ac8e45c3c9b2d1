"""Keras on another backend: what it would take."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tfgpu_magic.frameworks.tensorflow import devices


@pytest.mark.parametrize(
    ("variable", "file", "other"),
    [
        (None, None, None),
        (None, '{"backend": "tensorflow"}', None),
        (None, '{"backend": "jax"}', "jax"),
        (None, "no JSON", None),
        (None, "[]", None),
        ("torch", '{"backend": "jax"}', "torch"),
        ("tensorflow", '{"backend": "jax"}', None),
    ],
)
def test_the_backend_is_what_keras_would_take(
    variable: str | None, file: str | None, other: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "keras.src.backend.config", raising=False)
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    if variable:
        monkeypatch.setenv("KERAS_BACKEND", variable)
    if file:
        (tmp_path / "keras.json").write_text(file)
    monkeypatch.setattr(devices, "_from_file", devices._from_file.__wrapped__)  # which remembers

    assert devices.other_backend() == other
