"""A JAX plug-in of simulated machines: there, JAX starts its CUDA backend although /dev has no GPU.

`build` copies it to a folder in which JAX looks for plug-ins, and `machine` puts that folder on PYTHONPATH. JAX starts
CUDA only where /dev has a file of NVIDIA's, whatever the driver says.
Source: jax 0.10.2, `jax/_src/hardware_utils.py` and `discover_pjrt_plugins` in `jax/_src/xla_bridge.py`.
"""

import sys


def initialize() -> None:
    """Add a file that is there to those that JAX looks for; JAX calls it before it starts its first backend."""
    hardware = sys.modules.get("jax._src.hardware_utils")
    getattr(hardware, "_NVIDIA_GPU_DEVICES", []).append(__file__)
