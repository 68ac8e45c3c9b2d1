"""Answers about this session, as views: its timeline, and from its peaks how much to ask for."""

from __future__ import annotations

from tfgpu_magic import frameworks
from tfgpu_magic.insight.fit import fit
from tfgpu_magic.insight.timeline import TIMELINE
from tfgpu_magic.monitor.look import LOOK_TIMEOUT, look
from tfgpu_magic.views.fit import FitAnswer
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


def fitting() -> FitAnswer:
    """Return how much to ask for; the driver is asked for the GPUs' numbers and sizes."""
    snapshot = look(LOOK_TIMEOUT)
    found = fit(frameworks.session_peaks(), snapshot)
    return FitAnswer(found, trouble=snapshot.error or "", simulated=snapshot.simulated)
