"""What the `collector` and its starters share: its name, its timeouts, and the variable for its libraries."""

from __future__ import annotations

LINGER = 30.0
"""Seconds that the collector stays after the last look."""
READING_TIMEOUT = 60.0
"""Seconds that a reading may take: a driver without persistence takes many to start, on many GPUs."""

LIBRARIES = "TFGPU_MAGIC_LIBRARIES"
"""The variable with the folders where a driver's library may be, for systems that do not find it by themselves."""
PROCESS_NAME = "tfgpu-collector"
"""The process's name, also as a zombie; Linux keeps 15 characters."""
PARKER_NAME, PARKING_NAME = "tfgpu-parker", "tfgpu-parking"
"""The names of the helper that parks processes, which is started in the same way, and of its workers."""
