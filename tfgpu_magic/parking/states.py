"""The driver's states of a process, the phases of our own, and how it is set right. Pure.

The driver's states are in the CUDA Driver API, "Coredump and Checkpoint Control", `CUprocessState`. A phase is set
before the call that it names: when that call's worker has died, it says what may have happened. What is done then
follows from the driver's state, and the phase only adds what the driver does not tell.
"""

from __future__ import annotations

from enum import Enum, IntEnum


class CudaState(IntEnum):
    """What the driver says of a process: its own numbers, and what may be found instead."""

    RUNNING = 0
    LOCKED = 1
    CHECKPOINTED = 2
    FAILED = 3
    NO_CUDA = -1
    UNKNOWN = -2  # a state that nobody knows here, or an error of the system


class Phase(str, Enum):
    """How far a process has come."""

    LOCKING = "locking"
    CHECKPOINTING = "checkpointing"
    PARKED = "parked"
    RESTORING = "restoring"
    UNLOCKING = "unlocking"
    BACK = "back"  # it was parked, and has everything again: what must be known when it is ended
    FAILED = "failed"  # its GPU state cannot be had back; only its end frees what it still holds


UNSETTLED = frozenset({Phase.LOCKING, Phase.CHECKPOINTING, Phase.RESTORING, Phase.UNLOCKING})
"""The phases in which a call may be under way; when that has ended they are to be set right."""


def reconcile(phase: Phase, found: CudaState, *, returned: bool = False) -> Phase | None:
    """Return the phase of a process of which nobody knows what became of the last call.

    One that was locked is unlocked before, whatever the phase: if its checkpoint was not begun, it goes on as it was;
    if its restore is done, it has everything again. A checkpointed one stays parked, since a restore is only begun when
    the room for it is taken. One that has failed stays so: after a restore without room the driver may still call it
    checkpointed. Where nothing is known yet, the phase is the same; one that has never been away, nor has `returned`
    before, has none.
    """
    if found is CudaState.UNKNOWN or (found is CudaState.NO_CUDA and phase is not Phase.LOCKING):
        return phase
    if found is CudaState.FAILED or (found is CudaState.CHECKPOINTED and phase is Phase.FAILED):
        return Phase.FAILED
    if found is CudaState.CHECKPOINTED:
        return Phase.PARKED
    return Phase.BACK if returned or phase is not Phase.LOCKING else None
