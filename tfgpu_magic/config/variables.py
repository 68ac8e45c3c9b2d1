"""The environment variables with which a user or an administrator configures the policy and the ceiling."""

POLICY = "TFGPU_POLICY"
"""The policy for every kernel that loads the extension; it outweighs configuration, also where it is empty, which is no
policy."""

CEILING = "TFGPU_CEILING"
"""A ceiling for every process. On each GPU the lower holds of this one and the configuration's."""
