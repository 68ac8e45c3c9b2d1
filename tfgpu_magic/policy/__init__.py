"""Words become requests, requests are resolved on what the GPUs are, and that becomes a plan. Nothing is done here.

Here stands where a user or an administrator configures the policy and the ceiling: two variables and a file.
"""

from pathlib import Path

POLICY = "TFGPU_POLICY"
"""The policy for every kernel that loads the extension; it replaces the configuration's, and an empty one is none."""

CEILING = "TFGPU_CEILING"
"""A ceiling for every kernel that loads the extension and every program that uses tfgpu_magic; on each GPU the lower
holds of this one and the configuration's."""

FILE = Path("/etc/tfgpu_magic.toml")
"""The administrator's file, with the settings of `c.TfGpuMagics`; its ceiling holds in every process that has ours."""
