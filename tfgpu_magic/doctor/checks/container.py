"""Whether this is a container, which sees the GPUs and processes that it was given."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tfgpu_magic.doctor.finding import Finding, Outcome, Severity
from tfgpu_magic.doctor.machine import Machine

NONE = Outcome("none", Severity.GOOD, "This is none.")
INSIDE = Outcome("inside", Severity.NOTE, "This is one, of {kind}: it sees the GPUs and processes that it was given.")

_FILES = {"/.dockerenv": "Docker", "/run/.containerenv": "Podman", "/run/systemd/container": "systemd"}
_VARIABLES = {"KUBERNETES_SERVICE_HOST": "Kubernetes", "APPTAINER_NAME": "Apptainer", "SINGULARITY_NAME": "Singularity"}
_CGROUPS = {"kubepods": "Kubernetes", "docker": "Docker", "libpod": "Podman", "lxc": "LXC", "containerd": "containerd"}


def check(machine: Machine) -> Iterator[Finding]:
    """Tell by what its maker leaves in it."""
    kinds = [kind for name, kind in _VARIABLES.items() if name in machine.environ]
    cgroup = machine.text("/proc/self/cgroup") or ""
    kinds += [kind for name, kind in _CGROUPS.items() if re.search(rf"[/:.-]{name}\b", cgroup)]
    kinds += [kind for file, kind in _FILES.items() if machine.text(file) is not None]
    yield INSIDE(kind=kinds[0]) if kinds else NONE()
