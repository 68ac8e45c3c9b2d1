"""Asks the drivers: NVML and what calls it, when that is done, and one look in a child process."""
