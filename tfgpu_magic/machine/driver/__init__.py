"""Asks the driver: what reads NVML, when that is done, and one look in a child process."""
