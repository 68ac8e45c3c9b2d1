"""Programs that park themselves and come back, on a simulated machine and on a real one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import tfgpu_magic
from tests.simgpu.checkpoint_on_machine import digest, hold, intact, train
from tests.sizes import MIB
from tfgpu_magic.leases.lease_file import TABLE
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.gpu_state import GpuState
from tfgpu_magic.parking.messages import ParkOutcome
from tfgpu_magic.parking.transfers import Park, Unpark


class Seen(NamedTuple):
    """What a program has seen of its parking."""

    refusals: list[str]  # the names of the reasons why it did not go, or not come back
    same: bool  # whether all that it had is as it was
    held: tuple[int, int, int]  # what the driver listed of it before, meanwhile and after
    rates: tuple[float, float]  # bytes a second, out and back


def trained() -> Seen:
    """Train a Keras model; compare its weights and those of its optimizer, and train on."""
    before = train()
    seen = _away_and_back(lambda: digest() == before)
    train()
    return seen


def filled(size: int) -> Seen:
    hold(size)
    return _away_and_back(intact)


def torch_array() -> Seen:
    """Hold an array of PyTorch, which is computed on the GPU."""
    import torch

    array = torch.rand(256 * MIB // 4, device="cuda:0")
    before = array.cpu()
    return _away_and_back(lambda: bool((array.cpu() == before).all()))


def with_managed_memory() -> list[str]:
    hold(64 * MIB)
    hold(MIB, function="cuMemAllocManaged")
    return _names(Park(GpuState(os.getpid()), Inside()).park())


def _away_and_back(same: Callable[[], bool]) -> Seen:
    before, state = _listed(), GpuState(os.getpid())
    gone = Park(state, Inside()).park()
    away = _listed()
    back = Unpark(state, TABLE).unpark() if gone.done else gone
    size = 0 if gone.entry is None else gone.entry.size
    rates = (size / max(gone.seconds, 1e-3), size / max(back.seconds, 1e-3))
    return Seen(_names(gone) + _names(back), same(), (before, away, _listed()), rates)


def _listed() -> int:
    return sum(row.held or 0 for row in tfgpu_magic.look(60.0).processes if row.pid == os.getpid())


def _names(outcome: ParkOutcome) -> list[str]:
    return [refusal.reason.name for refusal in outcome.refusals]
