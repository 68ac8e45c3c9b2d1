"""The name by which `parking.driver` reads NVML, as long as it is there."""

from tfgpu_magic.monitor.driver.nvml import NvmlReader

Readers = NvmlReader
