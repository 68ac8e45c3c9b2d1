"""The environment variables that decide what JAX takes of its GPUs, for a policy. Pure.

All of this was seen on jaxlib 0.10.2, run on a simulated machine (`tests/frameworks/test_jax.py`). JAX reads the
variables when it looks for its plug-ins, which it does once: at its first array or operation, and not at its import
(`jaxlib.xla_client.generate_pjrt_gpu_plugin_options`).

- `XLA_CLIENT_MEM_FRACTION` has a former name, `XLA_PYTHON_CLIENT_MEM_FRACTION`, which is still read. Where both are
  set, JAX goes on without its GPUs. It is a fraction of a GPU's total as CUDA tells it, whatever is free; the CUDA
  context comes on top. There is one for all GPUs of a process; without it, it is 0.75.
- With the fraction JAX takes its whole pool, at the first array on a GPU. With `XLA_PYTHON_CLIENT_PREALLOCATE` at
  ``false``, ``False`` or ``0``, its pool grows, and the fraction caps it. It gives nothing back.
- `XLA_PYTHON_CLIENT_ALLOCATOR` at ``platform`` or ``cuda_async`` leaves the fraction without effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from tfgpu_magic.ground.message import Message, msg
from tfgpu_magic.policy.plan import fraction_in

FRACTION = "XLA_CLIENT_MEM_FRACTION"
FORMER_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"
ALLOCATOR = "XLA_PYTHON_CLIENT_ALLOCATOR"
VARIABLES = (FRACTION, FORMER_FRACTION, PREALLOCATE, ALLOCATOR)
"""What JAX reads."""

DEFAULT_FRACTION = 0.75
"""The fraction of each GPU that JAX takes, or grows to, where none is set."""

_LEAST = Decimal("0.000001")
"""The fraction for nothing at all: some KiB, as JAX takes 0 for no setting."""

_GROWS = ("false", "False", "0")
_CAPPED = ("", "default", "bfc")


def variables(fractions: Mapping[str, Decimal], grows: bool, environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables that a policy sets, None to remove one. The policy wins over the environment.

    Args:
        fractions: the part of its total that JAX may take of each GPU, by UUID, at most 1; the smallest holds for all.
            Empty without a limit.
        grows: whether JAX takes memory as it needs it, and not at once.
        environment: the variables as they are.
    """
    found: dict[str, str | None] = {}
    if fractions:
        found[FRACTION] = str(max(min(fractions.values()), _LEAST))
        if FORMER_FRACTION in environment:
            found[FORMER_FRACTION] = None
    if grows:
        found[PREALLOCATE] = "false"
    elif fractions and environment.get(PREALLOCATE) in _GROWS:
        found[PREALLOCATE] = None
    return found


def remarks(fractions: Mapping[str, Decimal], grows: bool, environment: Mapping[str, str]) -> list[Message]:
    """Return what must be said of a policy on JAX; the arguments are those of `variables`."""
    if grows and not fractions and not (environment.get(FRACTION) or environment.get(FORMER_FRACTION)):
        share = f"{DEFAULT_FRACTION:.0%}"
        return [msg("JAX grows to {share} of a GPU at most, its own default, where no limit is set.", share=share)]
    return []


def own_fraction(environment: Mapping[str, str]) -> Decimal:
    """Return the fraction that JAX has by the environment: its default without one, of two the lower."""
    found = [fraction_in(environment[name]) for name in (FRACTION, FORMER_FRACTION) if environment.get(name)]
    return min(filter(None, found), default=Decimal(str(DEFAULT_FRACTION)))  # 0 is no setting


def has_growth(environment: Mapping[str, str]) -> bool:
    """Return whether JAX takes memory as it needs it by the environment, and not at once."""
    return environment.get(PREALLOCATE) in _GROWS


def uncapped_allocator(environment: Mapping[str, str]) -> str | None:
    """Return the allocator that the environment chooses for JAX, if no fraction limits what that takes; else None."""
    chosen = environment.get(ALLOCATOR, "").lower()
    return None if chosen in _CAPPED else chosen
