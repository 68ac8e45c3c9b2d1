"""What else the user should know of a plan: GPUs that it leaves out, what was not checked, what may be broken. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfgpu_magic.config import fit
from tfgpu_magic.config.fit import Device
from tfgpu_magic.config.memory import context_bytes
from tfgpu_magic.config.process_state import ProcessState, Stage
from tfgpu_magic.config.resolver import Resolved
from tfgpu_magic.monitor.snapshot import Snapshot
from tfgpu_magic.units import rounded


def notes(resolved: Resolved, devices: Sequence[Device], snapshot: Snapshot, process: ProcessState) -> Iterator[str]:
    """Give the notes on a resolved policy, a sentence or two each."""
    yield from _on_the_rest(resolved, devices, snapshot)
    yield from _maybe_broken(snapshot, process)
    if process.old:
        yield f"TensorFlow {process.old} is older than 2.16, the oldest that tfgpu_magic was tested with."


def _on_the_rest(resolved: Resolved, devices: Sequence[Device], snapshot: Snapshot) -> Iterator[str]:
    """Give notes on the GPUs that no request is about, and on what is not taken at once."""
    hidden = [gpu.label for gpu in snapshot.gpus if gpu not in resolved.seen and not gpu.mig]
    if resolved.choice is not None and hidden:
        yield f"Hidden from TensorFlow: GPU {', '.join(hidden)}."
    unlimited = [device.gpu.label for device in devices if not device.limits]
    if resolved.by_gpu and resolved.everywhere is None and unlimited:
        what = (
            "TensorFlow takes memory there as it needs it"
            if resolved.growth
            else "TensorFlow takes all that is free there"
        )
        yield f"No limit is set for GPU {', '.join(unlimited)}: {what}. To hide a GPU, name the others with `visible`."
    blind = [device.gpu.label for device in devices if device.words is not None and device.gpu.free is None]
    if blind:
        yield f"What is free on GPU {', '.join(blind)} is unknown here, so whether it fits was not checked."
    total = sum(sum(device.limits) for device in devices)
    if total and resolved.growth and not unlimited:
        most = f"up to {rounded(total)} in all, as far as that much is free then"
        yield f"Nothing is taken at the start; memory grows {most}."
    if far := fit.out_of_reach(devices):
        yield f"So much is not free now. {fit.describe(far, (), {})}"


def _maybe_broken(snapshot: Snapshot, process: ProcessState) -> Iterator[str]:
    """Give a note where an op may have failed on a full GPU, and its error was caught: TensorFlow keeps no record."""
    shown = [gpu for gpu in snapshot.gpus if gpu.uuid in (process.shown or ()) and gpu.free is not None]
    full = [gpu.label for gpu in shown if (gpu.free or 0) < context_bytes(gpu.total or 0)]
    if process.stage is Stage.LISTED and full:
        yield (
            f"GPU {', '.join(full)} is full. If an operation has failed for that in this {process.host} already, "
            "restart it: TensorFlow may hang at the next one."
        )
