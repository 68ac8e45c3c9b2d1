"""Keras on another backend: what it says, and that a policy for TensorFlow says so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tfgpu_magic.config import keras
from tfgpu_magic.config.parser import parse
from tfgpu_magic.config.plan import make
from tfgpu_magic.config.process_state import ProcessState
from tfgpu_magic.monitor.snapshot import Gpu, Snapshot

GPU = Gpu(index=0, uuid="GPU-0", total=8 * 2**30, free=7 * 2**30)


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
    monkeypatch.setattr(keras, "_from_file", keras._from_file.__wrapped__)  # which remembers

    assert keras.other_backend() == other


@pytest.mark.parametrize(("words", "noted"), [("limit 2GiB", True), ("growth", True), ("visible 0", False)])
def test_words_about_memory_say_that_they_are_not_for_another_backend(words: str, noted: bool) -> None:
    plan = make(parse(words), Snapshot(time=0.0, gpus=(GPU,)), ProcessState(shown=("GPU-0",), keras="jax"))

    assert any(note.startswith("Keras' backend is jax here") for note in plan.notes) is noted
