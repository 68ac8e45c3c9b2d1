"""What this process has changed of its environment can be undone, whatever happened to a change."""

from __future__ import annotations

import os

import pytest

from tfgpu_magic.frameworks.runtime import EnvironmentChanges


def test_after_a_change_that_failed_the_users_own_value_can_be_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,1")
    changes = EnvironmentChanges()
    changes.write({"CUDA_VISIBLE_DEVICES": "1"})

    @changes.undone_on_error()
    def fail() -> None:
        changes.write({"CUDA_VISIBLE_DEVICES": "2"})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    changes.write({})
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "2,1"
