"""An amount of a GPU's memory: bytes, or a share of the whole. Pure."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from decimal import ROUND_DOWN, Context, Decimal
from typing import TypeAlias

from tfgpu_magic import units

EXACT = Context(prec=28)
"""The decimal context that percentages are written with: the program's own may round to any number of digits."""


@dataclass(frozen=True, slots=True)
class Share:
    """A fraction of a GPU's whole memory, in percent: more than 0, at most 100."""

    percent: Decimal

    def __str__(self) -> str:
        return f"{self.percent.normalize(EXACT):f}%"

    def of(self, total: int) -> int:
        """Return the bytes that it is of a GPU of `total` bytes, rounded down."""
        numerator, denominator = self.percent.as_integer_ratio()
        return total * numerator // (100 * denominator)


Amount: TypeAlias = int | Share
"""Bytes, or a share of a GPU's memory."""


def amount_text(amount: Amount) -> str:
    """Return an amount as text that is parsed as the same amount."""
    return str(amount) if isinstance(amount, Share) else units.exact(amount)


def amount_bytes(amount: Amount, total: int) -> int:
    """Return the bytes that an amount is on a GPU of `total` bytes."""
    return amount.of(total) if isinstance(amount, Share) else amount


def part(amount: Amount, count: int) -> Amount:
    """Return one of so many equal parts of an amount, rounded down to what people would write."""
    if isinstance(amount, Share):
        return Share(EXACT.divide(amount.percent, count).quantize(Decimal("0.01"), ROUND_DOWN, context=EXACT))
    return amount // count // units.MIB * units.MIB


def add(amounts: tuple[Amount, ...]) -> Amount | None:
    """Return the sum of amounts of one GPU; None for amounts of both kinds, for none, and for more than the whole."""
    sizes = [amount for amount in amounts if isinstance(amount, int)]
    shares = [amount for amount in amounts if isinstance(amount, Share)]
    percent = functools.reduce(EXACT.add, (share.percent for share in shares), Decimal(0))
    if len(shares) == len(amounts) and 0 < percent <= 100:
        return Share(percent)
    return sum(sizes) if sizes and len(sizes) == len(amounts) else None
