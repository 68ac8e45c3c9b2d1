"""What is done about a process that something has died over, for every phase and everything that may be found."""

from __future__ import annotations

from itertools import product

from tfgpu_magic.parking.states import UNSETTLED, CudaState, Phase, reconcile


def test_what_is_not_known_is_asked_again() -> None:
    assert {phase: reconcile(phase, CudaState.UNKNOWN) for phase in Phase} == {phase: phase for phase in Phase}


def test_a_process_that_is_away_stays_so_until_it_is_wanted() -> None:
    assert {reconcile(phase, CudaState.CHECKPOINTED) for phase in Phase if phase is not Phase.FAILED} == {Phase.PARKED}


def test_a_process_that_has_failed_is_not_taken_for_a_parked_one() -> None:
    assert reconcile(Phase.FAILED, CudaState.CHECKPOINTED) is Phase.FAILED
    assert {reconcile(phase, CudaState.FAILED) for phase in Phase} == {Phase.FAILED}


def test_a_process_that_runs_is_known_to_have_been_away_unless_it_surely_was_not() -> None:
    others = [phase for phase in Phase if phase is not Phase.LOCKING]
    for found in (CudaState.RUNNING, CudaState.NO_CUDA):
        assert reconcile(Phase.LOCKING, found) is None
        assert reconcile(Phase.LOCKING, found, returned=True) is Phase.BACK
    assert {reconcile(phase, CudaState.RUNNING) for phase in others} == {Phase.BACK}
    assert {phase: reconcile(phase, CudaState.NO_CUDA) for phase in others} == {phase: phase for phase in others}


def test_what_is_known_is_settled() -> None:
    known = (CudaState.RUNNING, CudaState.CHECKPOINTED, CudaState.FAILED)
    every = product(Phase, known, [False, True])

    assert not UNSETTLED & {reconcile(phase, found, returned=returned) for phase, found, returned in every}
