"""Answers how much to ask for, from this session's peaks and the machine's GPUs."""

from __future__ import annotations

from tfgpu_magic import frameworks
from tfgpu_magic.insight.fit import fit
from tfgpu_magic.monitor.look import LOOK_TIMEOUT, look
from tfgpu_magic.views.fit import FitAnswer


def answer() -> FitAnswer:
    """Return how much to ask for; the driver is asked for the GPUs' numbers and sizes."""
    snapshot = look(LOOK_TIMEOUT)
    found = fit(frameworks.session_peaks(), snapshot)
    return FitAnswer(found, trouble=snapshot.error or "", simulated=snapshot.simulated)
