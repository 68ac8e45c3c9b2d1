"""Reads from the text of /proc/PID/cgroup which unit, pod or container a process is in. Pure.

Only what root has made has a name: a user makes cgroups in a tree of their own, and may call them as they like. So a
path is matched from its root on, and what is of no known form is not passed on.
"""

from __future__ import annotations

import re

_LONGEST = 4096  # characters that are looked at
_ID = r"([0-9a-f]{64})"
_POD = r"([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})"
_FORMS = tuple(
    (kind, rf"^\d+:[\w=,]*:{path}(?=[./\n]|$)")
    for kind, path in (
        ("pod", rf"/kubepods(?:\.slice)?(?:/[\w.-]+)?/(?:[\w-]*-)?pod{_POD}(?:\.slice)?/(?:[a-z-]+-)?{_ID}"),
        ("container", rf"/(?:system\.slice/docker-|docker/|machine\.slice/libpod-){_ID}"),
        ("unit", r"/user\.slice/(user-\d{1,10}\.slice)"),
        ("unit", r"/system\.slice/([\w:.@-]{1,128}\.service)"),
        ("unit", r"/(?:[\w:.@-]{1,128}\.slice/){1,2}(jupyter-[\w:.@-]{1,120}\.service)"),
    )
)
"""What a path begins with, by kind. Sources: systemd.slice(5); Kubernetes' `cgroup_manager_linux.go`; runc, Podman."""


def cgroup_name(text: str) -> str | None:
    """Return the name of a process's cgroup.

    Args:
        text: what /proc/PID/cgroup has, of cgroups of either version.

    Returns:
        ``unit:user-1000.slice``, ``unit:jupyter-ann.service``, ``container:ID``, or ``pod:UID/ID`` with the ID of the
        container; None if it is in none of these.
    """
    for kind, form in _FORMS:
        if found := re.search(form, text[:_LONGEST], re.ASCII | re.MULTILINE):
            return f"{kind}:{'/'.join(found.groups()).replace('_', '-') if kind == 'pod' else found[1]}"
    return None
