"""What another notebook's question, or a page's, has this kernel do: park itself when the question's cell has ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tfgpu_magic import host
from tfgpu_magic.errors import MonitorError
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.inside import kernel, notebook
from tfgpu_magic.parking.messages import ANSWER, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgpu_magic.parking.refusals import Refusal


def park(before: float) -> None:
    """Park this kernel when the cell has ended that runs now, which is the question.

    Args:
        before: when the question is too old, in seconds since the epoch.
    """
    shell = host.shell()
    refused = _refused(host.magics(shell), before)

    def answer() -> Mapping[str, str]:
        try:
            outcome = notebook.of(shell).park() if refused is None else Outcome(refusals=(refused,))
        except MonitorError as error:
            outcome = Outcome(refusals=(why.NO_HELPER(str(error)),))
        return {ANSWER: outcome.to_line().decode()}

    kernel.at_end_of_cell(shell.kernel, answer)


def _refused(magics: object, before: float) -> Refusal | None:
    if getattr(magics, "parking", "off") == "off":
        return why.OFF()
    return why.BUSY() if time.time() > before else None
