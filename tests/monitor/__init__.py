"""NVML, owners and rows."""
