"""The errors of calls that a cluster does not run: a function for each returns it with its message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfgpu_magic.errors import NOT_STARTED, Refused, TfGpuError, WorkerDied
from tfgpu_magic.isolate.cluster import arrival, message


def gone(place: str | None) -> WorkerDied:
    """Return the error of a call whose worker was lost after it had begun."""
    return WorkerDied(
        f"The call began on {place or 'a machine'}, whose Dask worker was lost before the answer was here. "
        "It was not run again."
    )


def no_worker(needed: int, seconds: float, workers: Mapping[str, float], scheduler: str) -> Refused:
    """Return the error of a call for which no worker has had enough GPUs within so many seconds."""
    there = ", ".join(f"{address} (GPU={count:g})" for address, count in workers.items()) or "none"
    least = max(needed, 1)
    return Refused(
        f"No Dask worker offers {needed} GPU{'s' * (needed != 1)}, after {seconds:g} s (wait=). "
        f"The workers there are: {there}.\nStart one on a machine with GPUs: "
        f'dask worker {scheduler} --resources "GPU={least}"; or LocalCluster(resources={{"GPU": {least}}}).',
        verdict=NOT_STARTED,
    )


def lost(error: BaseException, place: str | None, scheduler: str, *, cut_off: bool) -> TfGpuError:
    """Return the error of a call for which Dask raised an exception instead of an answer.

    Args:
        error: the exception.
        place: the machine on which the call had begun; None if it had not.
        scheduler: the address of the scheduler.
        cut_off: whether the connection to the scheduler is lost.
    """
    kind = type(error).__name__
    if kind == "KilledWorker":
        return gone(place)
    if "Cancelled" in kind or cut_off:
        done = "ran to its end" if place else "began"
        return WorkerDied(
            f"The connection to the Dask scheduler at {scheduler} was lost, and the call with it: it is "
            f"not known whether it {done}. It is not run again."
        )
    return Refused(f"Dask could not run the call: {kind}: {error}", verdict="")


def refusal(kind: str, place: str, parts: Sequence[str], begun: str | None) -> TfGpuError:
    """Return the error of a call that a worker did not run.

    Args:
        kind: the reason, a constant of `arrival` or `message`.
        place: the machine of the worker.
        parts: the rest of its answer.
        begun: the machine on which the call had begun before; None if unknown.
    """
    if kind == arrival.ABSENT:
        return Refused(
            f"There is no tfgpu_magic on {place}, where the Dask worker is: {parts[0]}. "
            "Install it there: pip install 'tfgpu-magic[dask]'",
            verdict=NOT_STARTED,
        )
    if kind == arrival.OTHER:
        what, theirs = parts
        return Refused(
            f"{what} is {theirs} on {place}, where the Dask worker is, and "
            f"{message.versions()[what]} here. Have the same version there.",
            verdict=NOT_STARTED,
        )
    return gone(begun)
