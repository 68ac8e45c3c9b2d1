"""What can be asked of TensorFlow's GPUs: a module a word, and the table that lists them. Pure.

A module has its `WORD`, a frozen class for what is asked (`request.Memory`, `Choice`, `Cpus` or `Reset`), `read` and
`offers` (`request.PolicyWord`). Whatever a stage asks of it is a method of its class, so there is nothing to add there.
"""

from tfgpu_magic.config.request import PolicyWord
from tfgpu_magic.config.requests import default, growth, limit, pick, split, visible

REQUESTS: tuple[PolicyWord, ...] = (growth, limit, split, visible, pick, default)
"""The words of a policy, in the order of the help."""
