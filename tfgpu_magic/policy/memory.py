"""Amounts of memory: bytes and shares; and what TensorFlow can have of a GPU, by the driver's figures. Pure.

What a CUDA context takes is our estimate.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from decimal import ROUND_DOWN, Context, Decimal
from typing import NamedTuple, TypeAlias

from tfgpu_magic.errors import Refused
from tfgpu_magic.ground import units
from tfgpu_magic.ground.message import Line, msg
from tfgpu_magic.ground.snapshot import Gpu
from tfgpu_magic.ground.units import BINARY, MIB

EXACT = Context(prec=28)
"""The decimal context that percentages are written with: the program's own may round to any number of digits."""


@dataclass(frozen=True, slots=True)
class Percentage:
    """A fraction of a GPU's whole memory, in percent: more than 0, at most 100."""

    percent: Decimal

    def __str__(self) -> str:
        return f"{self.percent.normalize(EXACT):f}%"

    def of(self, total: int) -> int:
        """Return the bytes that it is of a GPU of `total` bytes, rounded down."""
        numerator, denominator = self.percent.as_integer_ratio()
        return total * numerator // (100 * denominator)


Amount: TypeAlias = int | Percentage
"""Bytes, or a share of a GPU's memory."""


def amount_text(amount: Amount) -> str:
    """Return an amount as text that is parsed as the same amount."""
    return str(amount) if isinstance(amount, Percentage) else units.exact(amount)


def amount_bytes(amount: Amount, total: int) -> int:
    """Return the bytes that an amount is on a GPU of `total` bytes."""
    return amount.of(total) if isinstance(amount, Percentage) else amount


def part(amount: Amount, count: int) -> Amount:
    """Return one of so many equal parts of an amount, rounded down to what people would write."""
    if isinstance(amount, Percentage):
        return Percentage(EXACT.divide(amount.percent, count).quantize(Decimal("0.01"), ROUND_DOWN, context=EXACT))
    return amount // count // MIB * MIB


def add(amounts: tuple[Amount, ...]) -> Amount | None:
    """Return the sum of amounts of one GPU; None for amounts of both kinds, for none, and for more than the whole."""
    sizes = [amount for amount in amounts if isinstance(amount, int)]
    shares = [amount for amount in amounts if isinstance(amount, Percentage)]
    percent = functools.reduce(EXACT.add, (share.percent for share in shares), Decimal(0))
    if len(shares) == len(amounts) and 0 < percent <= 100:
        return Percentage(percent)
    return sum(sizes) if sizes and len(sizes) == len(amounts) else None


def capacity(gpu: Gpu) -> str:
    """Write what a GPU has: ``80 GiB``; ``your 32 GiB (GPU: 80 GiB)`` where the driver lets this process have less."""
    if gpu.limit is None:
        return units.rounded(gpu.total)
    most, total = units.rounded(gpu.capacity), units.rounded(gpu.total)
    if gpu.capacity == gpu.total:
        return f"your {most} (the driver's limit)"
    return f"your {most} (GPU: {total})"


LEAST_LIMIT = 32 * MIB
"""Below this TensorFlow starts and then fails at nearly everything: cuBLAS alone wants a workspace of up to 32 MiB."""


def context_bytes(total: int) -> int:
    """Return the bytes to keep free on a GPU of `total` bytes for a CUDA context, which no limit counts.

    A context takes some hundred MiB, more on larger GPUs: 518 to 522 MiB were seen on an H200 (driver 580.159.04). One
    32nd of the GPU, from 256 to 576 MiB, is our estimate.
    """
    return min(max(total // 32, 256 * MIB), 576 * MIB)


def reserve_bytes(free: int, capability: tuple[int, int] | None) -> int:
    """Return what TensorFlow, where it takes all that is free, leaves to cuDNN, cuBLAS and NCCL (gpu_device.cc).

    How much those take depends on the model, and no simulated GPU has them. Where the compute capability is unknown,
    the most is assumed.

    Args:
        free: bytes that are free beside a CUDA context.
        capability: the GPU's compute capability.
    """
    if free < 2 * BINARY["GiB"]:
        return 225 * MIB
    major = 9 if capability is None else capability[0]
    return (500 if major <= 6 else {7: 1050, 8: 1536}.get(major, 1800)) * MIB


def whole(size: int) -> int:
    """Return bytes in whole MiB, rounded down, as TensorFlow counts a limit."""
    return size // MIB * MIB


def round_up(size: int) -> int:
    """Round a size up to one that people would write: tenths of a GiB, or tens of MiB."""
    if size >= BINARY["GiB"]:
        return -(-size * 10 // BINARY["GiB"]) * BINARY["GiB"] // 10
    return -(-max(size, LEAST_LIMIT) // (10 * MIB)) * 10 * MIB


class Figures(NamedTuple):
    """A GPU's figures, for requests that calculate with them; a figure that the driver does not report is refused."""

    gpu: Gpu

    @property
    def total(self) -> int:
        """The bytes that a share of it is a share of.

        Raises:
            Refused: the driver does not report it.
        """
        if self.gpu.capacity is None:
            raise self._unknown("how much memory it has")
        return self.gpu.capacity

    @property
    def spare(self) -> int:
        """The bytes that are free for pools, without CUDA's context and what TensorFlow leaves to CUDA's libraries.

        Raises:
            Refused: the driver does not report what is free.
        """
        if self.gpu.free is None or self.gpu.total is None:
            raise self._unknown("how much is free")
        room = max(self.gpu.free - context_bytes(self.gpu.total), 0)
        return max(room - reserve_bytes(room, self.gpu.capability), 0)

    def bytes(self, amount: Amount) -> int:
        """Return an amount in bytes, whole MiB.

        Raises:
            Refused: it is a share of a figure that the driver does not report.
        """
        return whole(amount.of(self.total) if isinstance(amount, Percentage) else amount)

    def _unknown(self, what: str) -> Refused:
        return Refused(
            msg(
                "GPU {gpu}: the driver does not tell {what}, so a part of that is no known size. Name a size instead, "
                "as in `{line}`.",
                gpu=self.gpu.label,
                what=what,
                line=Line("limit 2GiB"),
            )
        )
