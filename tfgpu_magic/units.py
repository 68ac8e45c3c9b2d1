"""Bytes to text and back. Everywhere else memory is an integer of bytes, and unknown is None."""

import re
from decimal import Decimal

from tfgpu_magic.errors import PolicyError

BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
DECIMAL = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
MIB = BINARY["MiB"]

LARGEST = 2**50
"""Bytes that no GPU has; up to here a size is read and written exactly."""

_BYTES_PER_UNIT = {unit.lower(): size for unit, size in (BINARY | DECIMAL).items()}
_SECONDS_PER_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SIZE = re.compile(r"(?P<number>\d{1,15}(?:\.\d{1,6})?)\s*(?P<unit>[a-z]*)", re.IGNORECASE | re.ASCII)


def parse_bytes(text: str) -> int:
    """Read a size such as ``2GiB``, ``512 MiB`` or ``1.5GB``, and return it in bytes.

    Binary units (KiB, MiB, GiB, TiB) count in 1024, decimal ones (kB, MB, GB, TB) in 1000
    (IEC 80000-13); letter case does not matter. A fraction of a byte is dropped.

    Raises:
        PolicyError: the text is no size, one larger than `LARGEST`, or a number whose unit is missing or unknown.
    """
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise PolicyError(f"{text!r} is not a size. Write one as 2GiB, 512MiB or 1.5GB; between policies stands a `;`.")
    number, unit = match["number"], match["unit"]
    if not unit:
        raise PolicyError(f"{number} of what? Write {number}MiB or {number}GiB.")
    if unit.lower() in ("k", "m", "g", "t"):
        raise PolicyError(
            f"{text!r} may be {number}{unit.upper()}iB, counted in 1024, or {number}{unit.upper()}B, in 1000."
        )
    if unit.lower() not in _BYTES_PER_UNIT:
        raise PolicyError(f"{unit!r} in {text!r} is not a unit. The units are {', '.join(BINARY | DECIMAL)}.")
    size = int(Decimal(number) * _BYTES_PER_UNIT[unit.lower()])
    if size > LARGEST:
        raise PolicyError(f"{text!r} is more than any machine has.")
    return size


def parse_seconds(text: str) -> float:
    """Read a time such as ``90s``, ``10m``, ``2h`` or ``500ms``, and return it in seconds; above zero.

    Raises:
        PolicyError: the text is no time, or its unit is missing or unknown.
    """
    match = _SIZE.fullmatch(text.strip())
    scale = _SECONDS_PER_UNIT.get(match["unit"].lower()) if match else None
    if match is None or scale is None or not float(match["number"]):
        raise PolicyError(f"{text!r} is not a time above zero. Write one as 90s, 10m or 2h.")
    return float(match["number"]) * scale


def exact(size: int) -> str:
    """Write bytes so that `parse_bytes` reads the same number, as short as can be: ``2GiB``, ``7.2GiB``, ``1.5GB``."""
    tries = (f"{size / scale:.{digits}f}{unit}" for unit, scale in (BINARY | DECIMAL).items() for digits in range(7))
    same = [text for text in tries if parse_bytes(text) == size]
    # Thousandths of a kB are bytes; what a float cannot hold is written so.
    return min(same, key=len, default=f"{size // 1000}.{size % 1000:03d}kB")


def rounded(size: int | None) -> str:
    """Write bytes for reading, with a decimal if they are not whole: ``8 GiB``, ``3.2 GiB``, ``322 MiB``, ``N/A``."""
    if size is None:
        return "N/A"
    if size < BINARY["GiB"]:
        return f"{size / MIB:.0f} MiB"
    unit = "GiB" if size < BINARY["TiB"] else "TiB"
    return f"{size / BINARY[unit]:.{1 if size % BINARY[unit] else 0}f} {unit}"
