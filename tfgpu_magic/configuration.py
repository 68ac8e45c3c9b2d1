"""Enforces what is configured for this user, and what `%config TfGpuMagics.ceiling = "limit 2GiB"` changes of it."""

from __future__ import annotations

import grp
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tfgpu_magic import administrator, process_ceiling
from tfgpu_magic.config import import_hook, parser
from tfgpu_magic.config.runtime import environ as variables
from tfgpu_magic.config.variables import CEILING, POLICY
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.host import shell
from tfgpu_magic.units import seconds

if TYPE_CHECKING:
    from tfgpu_magic.config.word import Magic

lower_ceiling = process_ceiling.lower
ceiling_in_force = process_ceiling.in_force
quieten = variables.quieten


def enforce(policy: str, policies: Mapping[str, str], ceiling: str, warn: Callable[[str], None]) -> str:
    """Hold this process to what is configured, as far as possible.

    Args:
        policy: the configuration's policy; may be empty.
        policies: the configuration's policies by Unix group.
        ceiling: the configuration's ceiling; may be empty.
        warn: shows what cannot be enforced.

    Returns:
        The ceiling that holds, as text; an empty one where there is none.
    """
    held = ""
    if (ceiling or CEILING in os.environ) and process_ceiling.restrict(ceiling, warn):
        held = process_ceiling.in_force()
    given, where = policy_for_user(policy, policies)
    if given or held:
        if not administrator.has_policy():  # else this is loaded again, and what was asked meanwhile stays in force
            administrator.enforce(given or "growth", where if given else "the ceiling", warn)
        administrator.hold_others()
    return held


def policy_for_user(
    policy: str, policies: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> tuple[str, str]:
    """Return the policy that the environment or the configuration gives this user, and its source as a phrase."""
    if POLICY in environ:
        return environ[POLICY], f"${POLICY}"
    for group, of_group in policies.items():
        if _is_member(group):
            return of_group, f"the configuration for the group {group}"
    return policy, "the configuration"


def _is_member(group: str) -> bool:
    """Tell whether this user is in a Unix group; in one that is unknown here, nobody is."""
    try:
        return grp.getgrnam(group).gr_gid in {os.getegid(), *os.getgroups()}
    except KeyError:
        return False


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
