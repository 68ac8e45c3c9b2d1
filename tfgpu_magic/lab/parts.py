"""What the lab adds to the server and the doctor; where there is no administrator's file, the server has none of it."""

from __future__ import annotations

from tfgpu_magic import policy
from tfgpu_magic.model.parts import register

register("check", "tfgpu_magic.lab.idle_check:TITLED")
if policy.FILE.exists():
    register("server task", "tfgpu_magic.lab.steps:start")
