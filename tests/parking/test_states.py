"""What is done about a process that something has died over, for every phase and everything that may be found."""

from __future__ import annotations

from itertools import product

from tfgpu_magic.parking.states import UNSETTLED, CudaState, Found, Phase, reconcile


def test_a_locked_process_is_unlocked_whatever_is_written() -> None:
    both = product(Phase, [False, True])

    assert {reconcile(phase, CudaState.LOCKED, returned=returned) for phase, returned in both} == {Phase.UNLOCKING}


def test_what_has_ended_is_forgotten_and_what_is_not_known_is_asked_again() -> None:
    assert {reconcile(phase, Found.GONE) for phase in Phase} == {None}
    assert {reconcile(phase, Found.UNKNOWN) for phase in Phase} == {Found.UNKNOWN}


def test_a_process_that_is_away_stays_so_until_it_is_wanted() -> None:
    assert {reconcile(phase, CudaState.CHECKPOINTED) for phase in Phase if phase is not Phase.FAILED} == {Phase.PARKED}


def test_a_process_that_has_failed_is_not_taken_for_a_parked_one() -> None:
    assert reconcile(Phase.FAILED, CudaState.CHECKPOINTED) is Phase.FAILED
    assert {reconcile(phase, CudaState.FAILED) for phase in Phase} == {Phase.FAILED}


def test_a_process_that_runs_is_known_to_have_been_away_unless_it_surely_was_not() -> None:
    others = [phase for phase in Phase if phase is not Phase.LOCKING]
    for found in (CudaState.RUNNING, Found.NO_CUDA):
        assert reconcile(Phase.LOCKING, found) is None
        assert reconcile(Phase.LOCKING, found, returned=True) is Phase.BACK
    assert {reconcile(phase, CudaState.RUNNING) for phase in others} == {Phase.BACK}
    assert {reconcile(phase, Found.NO_CUDA) for phase in others} == {Found.UNKNOWN}  # nothing may run there


def test_what_is_set_right_is_settled() -> None:
    for phase, found, returned in product(Phase, [*CudaState, *Found], [False, True]):
        after = reconcile(phase, found, returned=returned)
        if after is Phase.UNLOCKING:
            after = reconcile(phase, CudaState.RUNNING, returned=returned)
        if not isinstance(after, Found) and phase is not Phase.BACK:  # one that is back is nobody's to set right
            assert after not in UNSETTLED, (phase, found, returned)
