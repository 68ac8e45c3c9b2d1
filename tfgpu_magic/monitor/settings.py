"""What the collector and those who start it agree on: its name, its patience, and how it is told where to look."""

from __future__ import annotations

LINGER = 30.0
"""Seconds that it stays after the last look."""
PATIENCE = 60.0
"""Seconds that a reading may take: a driver without persistence takes many to start, on many GPUs."""

LIBRARIES = "TFGPU_MAGIC_LIBRARIES"
"""The variable with the folders where a driver's library may be, for systems that do not find it by themselves."""
NAME = "tfgpu-collector"
"""What the process is called, also when it has ended and nobody has waited for it: 15 characters are kept."""
