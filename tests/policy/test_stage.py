"""How far TensorFlow has come is told of any release, and what Keras would take in its place."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfgpu_magic.frameworks.tensorflow import devices
from tfgpu_magic.policy.process_state import Stage


@pytest.fixture
def tensorflow(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A release of TensorFlow whose context has other attributes than we know."""
    module = SimpleNamespace(__version__="2.30.0-dev")
    monkeypatch.setitem(sys.modules, "tensorflow", module)
    monkeypatch.setitem(sys.modules, "tensorflow.python.eager.context", SimpleNamespace(_context=object()))
    return module


@pytest.mark.usefixtures("tensorflow")
def test_a_release_that_names_its_context_otherwise_is_no_error() -> None:
    assert devices.current_stage() in (Stage.IMPORTED, Stage.LISTED)


@pytest.mark.parametrize(
    ("version", "old"),
    [("2.15.1", True), ("1.15.0", True), ("2.16.0rc0", False), ("2.21.0", False), ("nightly", False)],
)
def test_a_release_that_was_never_tried_is_known_as_old(tensorflow: SimpleNamespace, version: str, old: bool) -> None:
    tensorflow.__version__ = version

    assert devices.old_version() == (version if old else None)


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
    monkeypatch.setattr(devices, "_read_backend", devices._read_backend.__wrapped__)  # which remembers

    assert devices.other_backend() == other
