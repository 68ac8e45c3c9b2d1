"""Makes the view of a session from the timeline, or from a record of it that was saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgpu_magic.insight.timeline import TIMELINE
from tfgpu_magic.monitor.look import look
from tfgpu_magic.views.track import Session

if TYPE_CHECKING:
    import os


def timeline(path: str | os.PathLike[str] | None = None) -> Session:
    """Return what this session had in use of each GPU over time, and what each tracked cell did.

    A notebook that has loaded the extension is sampled about once a second while something may change, and so is a
    program that `tfgpu run` runs. What each cell did is known of those that `%tf_gpu track on` tracks.

    Args:
        path: a record that `save` wrote, to look at instead.

    Returns:
        The session, which a notebook shows as a chart. Its `record` has ``samples()`` (seconds since the epoch, and
        bytes), ``cells()`` and ``failures()``; ``frame()`` is a pandas DataFrame by cell, and ``save(path)`` writes a
        record or a page.

    Raises:
        OSError: the file cannot be read.
        ValueError: it has no such record.

    Examples:
        ``timeline().frame()["peak"].max()`` is the highest peak of any tracked cell, in bytes.
    """
    if path is not None:
        return Session.read(path)
    snapshot = look()
    return Session(TIMELINE, {gpu.uuid: gpu.label for gpu in snapshot.gpus if gpu.uuid}, simulated=snapshot.simulated)
