"""What this process has changed of its environment can be undone; what CUDA shows is asked once of the same GPUs."""

from __future__ import annotations

import os

import pytest

from tests.sizes import GIB
from tfgpu_magic.frameworks import cuda
from tfgpu_magic.frameworks.runtime import EnvironmentChanges, Runtime
from tfgpu_magic.ground.snapshot import Gpu

SHOWN = "CUDA_VISIBLE_DEVICES"


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> EnvironmentChanges:
    """One change of a variable that the user has set."""
    monkeypatch.setenv(SHOWN, "2,1")
    changes = EnvironmentChanges()
    changes.write({SHOWN: "1"})
    return changes


def test_after_a_change_that_failed_the_users_own_value_can_be_restored(changes: EnvironmentChanges) -> None:
    @changes.undone_on_error()
    def fail() -> None:
        changes.write({SHOWN: "2"})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert os.environ[SHOWN] == "1"
    changes.write({})
    assert os.environ[SHOWN] == "2,1"


def test_what_the_user_sets_after_a_change_is_their_own(changes: EnvironmentChanges) -> None:
    os.environ[SHOWN] = "3"

    assert changes.users_variables()[SHOWN] == "3"
    changes.write({})
    assert os.environ[SHOWN] == "3"


def test_cuda_is_asked_once_of_the_same_gpus_and_anew_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SHOWN, raising=False)
    runtime, answers = Runtime(), iter(["GPU-2", "GPU-4"])
    monkeypatch.setattr(cuda, "visible_gpus_with", lambda *_, **__: (next(answers),))

    def shown(*uuids: str) -> tuple[str, ...] | None:
        """Return what CUDA would show of GPUs that differ, so that only CUDA knows their order."""
        return runtime.observe([Gpu(index=n, uuid=uuid, total=(n + 1) * GIB) for n, uuid in enumerate(uuids)]).shown

    assert shown("GPU-1", "GPU-2") == shown("GPU-1", "GPU-2") == ("GPU-2",)
    assert shown("GPU-3", "GPU-4") == ("GPU-4",)
