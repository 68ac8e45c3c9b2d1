"""Makes the view of a session from the timeline."""

from __future__ import annotations

from tfgpu_magic.insight.timeline import TIMELINE
from tfgpu_magic.monitor.look import look
from tfgpu_magic.views.track import Session


def timeline() -> Session:
    """Return what this session had in use of each GPU over time, and what each tracked cell did.

    A notebook that has loaded the extension is sampled about once a second while something may change, and so is a
    program that `tfgpu run` runs. What each cell did is known of those that `%tf_gpu track on` tracks.

    Returns:
        The session, which a notebook shows as a chart. Its `record` has ``samples()`` (seconds since the epoch, and
        bytes) and ``cells()``; ``frame()`` is a pandas DataFrame by cell.

    Examples:
        ``timeline().frame()["peak"].max()`` is the highest peak of any tracked cell, in bytes.
    """
    snapshot = look()
    return Session(TIMELINE, {gpu.uuid: gpu.label for gpu in snapshot.gpus if gpu.uuid}, simulated=snapshot.simulated)
