"""Finds the policy and the ceiling configured for this user, which `administrator` and `process_ceiling` enforce."""

from __future__ import annotations

import grp
import os
from collections.abc import Callable, Mapping

from tfgpu_magic import administrator
from tfgpu_magic.config.variables import CEILING, POLICY


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
    if ceiling or CEILING in os.environ:
        from tfgpu_magic import process_ceiling  # loading the extension is to be quick, and few have a ceiling

        if process_ceiling.restrict(ceiling, warn):
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
