"""What the lab adds to a Jupyter server: the idle steps, imported only if there is an administrator's file."""

from __future__ import annotations

from importlib import import_module

from tfgpu_magic import policy
from tfgpu_magic.server.extensions import Extension

EXTENSION: Extension = import_module("tfgpu_magic.lab.idle_actions").Lab() if policy.FILE.exists() else Extension()
