"""What changes when a setting of the magics changes in a session: `%config TfGpuMagics.ceiling = "limit 2GiB"`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tfgpu_magic import process_ceiling
from tfgpu_magic.config import import_hook, parser
from tfgpu_magic.config.runtime import environ
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.host import shell
from tfgpu_magic.units import seconds

if TYPE_CHECKING:
    from tfgpu_magic.config.word import Magic

lower_ceiling = process_ceiling.lower
ceiling_in_force = process_ceiling.in_force
quieten = environ.quieten


def magic_for(policy: str) -> Magic:
    """Return the magic whose line sets a policy: for every framework, where each can be asked it."""
    try:
        return "gpu" if parser.parse(policy).of_any_framework else "tf_gpu"
    except PolicyError:  # the line says why
        return "tf_gpu"


def be_quiet(*, on: bool) -> None:
    """Say nothing at TensorFlow's import where all is well; or say what is in force."""
    import_hook.QUIET = on


def park(setting: str) -> None:
    """Hold to a setting of ``TfGpuMagics.parking``: off, ask, or auto and a time.

    Raises:
        PolicyError: it is none of these.
    """
    word, _, time = setting.strip().partition(" ")
    after = seconds(time) if word == "auto" else None
    if word not in ("off", "ask", "auto") or (time and word != "auto"):
        raise PolicyError(
            f"{setting!r} is no setting of parking. The settings are off, ask, and auto with a time: auto 30m."
        )
    parking = sys.modules.get("tfgpu_magic.parking.inside.automatic")
    if after is None and parking is None:
        return
    from tfgpu_magic.parking.inside import automatic  # nothing of parking is imported before it is asked for

    automatic.set_up(shell(), after, when_needed=False)
