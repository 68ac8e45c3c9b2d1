"""What is imported for isolated calls before the first of them: a list, to which the rooms above add what is theirs."""

from __future__ import annotations

PRELOAD = ["tensorflow", "keras", "cloudpickle", "tfgpu_magic.control", "tfgpu_magic.isolate.cells.shell"]
"""Modules; what is not installed is left out."""
