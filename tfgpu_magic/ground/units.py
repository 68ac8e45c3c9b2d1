"""Bytes to text and back, and text to seconds; in all other modules memory is an int of bytes, None if unknown."""

import re

from tfgpu_magic.errors import PolicyError

BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
DECIMAL = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
MIB = BINARY["MiB"]

LETTERS = ("k", "m", "g", "t")
"""Units that people write and that may be binary or decimal."""

LARGEST = 2**50
"""More bytes than any GPU has; up to this a size is read and written exactly."""

MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}
LONGEST = 24 * 24 * 3600
"""The seconds that Linux can wait at once: 2**31 milliseconds, in whole days (epoll_wait(2))."""

_BYTES_PER_UNIT = {unit.lower(): size for unit, size in (BINARY | DECIMAL).items()}
_SIZE = re.compile(r"(?P<number>\d{1,15}(?:\.\d{1,6})?)\s*(?P<unit>[a-z]*)", re.IGNORECASE | re.ASCII)


def parse_bytes(text: str) -> int:
    """Parse a size such as ``2GiB``, ``512 MiB`` or ``1.5GB``, and return it in bytes.

    Binary units (KiB, MiB, GiB, TiB) count in 1024, decimal ones (kB, MB, GB, TB) in 1000
    (IEC 80000-13); letter case does not matter. A fraction of a byte is dropped.

    Raises:
        PolicyError: the text is no size, one larger than `LARGEST`, or a number whose unit is missing or unknown.
    """
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise PolicyError(f"{text!r} is not a size. Write one as 2GiB, 512MiB or 1.5GB; separate policies with `;`.")
    number, unit = match["number"], match["unit"]
    if not unit:
        raise PolicyError(f"{number} of what? Write {number}MiB or {number}GiB.")
    if unit.lower() in LETTERS:
        binary, decimal = (next(u for u in units if u[0].lower() == unit.lower()) for units in (BINARY, DECIMAL))
        raise PolicyError(f"{text!r} may be {number}{binary}, counted in 1024, or {number}{decimal}, in 1000.")
    if unit.lower() not in _BYTES_PER_UNIT:
        raise PolicyError(f"{unit!r} in {text!r} is not a unit. The units are {', '.join(BINARY | DECIMAL)}.")
    numerator, denominator = _as_fraction(number)
    size = numerator * _BYTES_PER_UNIT[unit.lower()] // denominator
    if size > LARGEST:
        raise PolicyError(f"{text!r} is more than any machine has.")
    return size


def parse_seconds(time: float | str) -> float:
    """Parse a time such as ``90s``, ``10m``, ``1.5h`` or ``500ms``; a number is seconds already.

    Raises:
        PolicyError: the text is no time, one of zero or more than `LONGEST`, or a number without its unit.
    """
    if isinstance(time, str):
        match = _SIZE.fullmatch(time.strip())
        if not match or match["unit"].lower() not in ("", *MILLISECONDS):
            raise PolicyError(f"{time!r} is not a time. Write one as 90s, 10m, 1.5h or 500ms.")
        if not match["unit"]:
            raise PolicyError(f"{match['number']} of what? Write {match['number']}s or {match['number']}m.")
        numerator, denominator = _as_fraction(match["number"])
        value = numerator * MILLISECONDS[match["unit"].lower()] / (1000 * denominator)
    elif isinstance(time, int | float) and not isinstance(time, bool):
        value = float(time)
    else:
        raise PolicyError(f"{time!r} is not a time. Write seconds, or a text such as '10m'.")
    if not 0 < value <= LONGEST:
        raise PolicyError(f"{time!r} cannot be waited for: a time is above zero, and {LONGEST // 86400} days at most.")
    return value


def _as_fraction(number: str) -> tuple[int, int]:
    whole, _, decimals = number.partition(".")
    return int(whole + decimals), 10 ** len(decimals)


def exact(size: int) -> str:
    """Return bytes as the shortest text that `parse_bytes` reads as the same: ``2GiB``, ``7.2GiB``, ``1.5GB``."""
    same = [
        f"{number}{unit}"
        for unit, scale in (BINARY | DECIMAL).items()
        for digits in range(7)
        if int((number := f"{size / scale:.{digits}f}").replace(".", "")) * scale // 10**digits == size
    ]
    # Thousandths of a kB are bytes; a size that a float cannot hold is written in them.
    return min(same, key=len, default=f"{size // 1000}.{size % 1000:03d}kB")


def rounded(size: int | None) -> str:
    """Return bytes as text for people, with a decimal if not whole: ``8 GiB``, ``3.2 GiB``, ``322 MiB``, ``N/A``.

    What would be no MiB is written in KiB or in bytes, so that a little does not read as nothing: ``3 KiB``, ``256 B``.
    """
    if size is None:
        return "N/A"
    if 0 < size <= MIB // 2:
        return f"{size} B" if size < BINARY["KiB"] else f"{size / BINARY['KiB']:.0f} KiB"
    if size < BINARY["GiB"]:
        return f"{size / MIB:.0f} MiB"
    unit = "GiB" if size < BINARY["TiB"] else "TiB"
    return f"{size / BINARY[unit]:.{1 if size % BINARY[unit] else 0}f} {unit}"
