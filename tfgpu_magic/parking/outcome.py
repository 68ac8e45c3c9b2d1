"""What has become of a notebook that was to park: what `this_notebook` answers, and `other_notebooks` reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfgpu_magic.ground.message import Message, msg

MIME = "application/vnd.tfgpu-magic.parked+json"
"""The type of the answer; no front end shows it."""

NOT_PARKED = msg("Not parked.")
BUSY = msg("Its kernel is busy, and is parked between cells only. Try again when its cell has ended.")
UNLOADED = msg("tfgpu_magic is not loaded there. Run `%load_ext tfgpu_magic` in a cell of that notebook first.")


@dataclass(frozen=True, slots=True)
class ParkOutcome:
    """What has become of a notebook that was to park; IPython sends it as JSON.

    Attributes:
        parked: whether it is parked now.
        lines: what went to host memory and what stays; or why it is not parked, and what to do. A sentence each.
    """

    parked: bool
    lines: Sequence[Message]

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        return {MIME: {"parked": self.parked, "lines": [*map(str, self.lines)]}}
