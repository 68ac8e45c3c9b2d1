"""The modules that the fork server imports before the first isolated call, `control` and `cells.shell` included."""

from __future__ import annotations

PRELOAD = ["tensorflow", "keras", "cloudpickle", "tfgpu_magic.engine.engine", "tfgpu_magic.isolate.cells.shell"]
"""The modules' names; a module that is not installed is left out."""
