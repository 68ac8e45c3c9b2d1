"""The names of the frameworks as people write them, with those that views show. Pure."""

from __future__ import annotations

NAMES = {"tensorflow": "TensorFlow", "torch": "PyTorch", "jax": "JAX"}
