"""What the lab adds to the doctor and, if there is an administrator's file, to the server."""

from __future__ import annotations

from tfgpu_magic import policy
from tfgpu_magic.model.parts import register

register("check", "tfgpu_magic.lab.idle_check:TITLED")
if policy.FILE.exists():
    register("server task", "tfgpu_magic.lab.steps:start")
