"""Sizes that many tests count in, in bytes; the expected figures are thus not the package's own arithmetic."""

from __future__ import annotations

MIB, GIB = 2**20, 2**30

CONTEXT = 256 * MIB
"""What a CUDA context takes of a simulated GPU, besides what its program asks for."""

LITTLE = range(CONTEXT, CONTEXT + 64 * MIB)
"""What TensorFlow holds of a GPU where memory grows and next to nothing was done there."""
