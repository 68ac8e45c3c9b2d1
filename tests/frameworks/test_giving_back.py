"""Memory is asked back of every framework that uses a GPU and can give it, and of no other."""

from __future__ import annotations

import pytest

import tfgpu_magic
from tests.frameworks.novum import Novum
from tfgpu_magic import frameworks
from tfgpu_magic.config.process_state import Stage


class Giving(Novum):
    """One that gives back."""

    gives_back = True

    def give_back(self) -> dict[str, int]:
        return {"GPU-1": 3, "GPU-2": 1}


class Keeping(Novum):
    """One that could, and was not set up for it."""

    name = "Keeping"
    gives_back = False

    def give_back(self) -> dict[str, int]:
        raise AssertionError("it was asked")


def test_what_each_gave_is_told_in_one_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    there = (Giving(), Keeping(), Novum(), Giving(), Giving(Stage.LISTED))
    monkeypatch.setattr(frameworks, "FRAMEWORKS", there)

    assert tfgpu_magic.give_back() == 8


def test_where_none_can_it_is_refused_and_they_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frameworks, "FRAMEWORKS", (Giving(Stage.IMPORTED), Keeping(), Novum()))

    with pytest.raises(tfgpu_magic.Refused, match="Keeping and Novum keep the GPU memory that was taken until this"):
        tfgpu_magic.give_back()


def test_where_none_uses_a_gpu_there_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frameworks, "FRAMEWORKS", (Giving(Stage.IMPORTED), Keeping(Stage.ABSENT)))

    assert tfgpu_magic.give_back() == 0
