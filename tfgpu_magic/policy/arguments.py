"""Parsers of what follows a word: flags, amounts, counts and GPUs, from text. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

from tfgpu_magic.errors import PolicyError
from tfgpu_magic.ground import units
from tfgpu_magic.policy.memory import EXACT, Amount, Percentage
from tfgpu_magic.policy.policy import GpuRef

MOST_PARTS = 64
"""The most logical devices to split one GPU or CPU into; more is taken for a typing error."""

SIZES = ("2GiB", "4GiB", "25%", "50%")
"""Amounts to offer."""

_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,6})?"
_COUNT = r"[0-9]{1,4}"
_INSTANCE = r"([0-9]{1,4})\.([0-9]{1,2})"
_PERCENT = r"(?P<number>[0-9]{1,3}(?:\.[0-9]{1,6})?)%"
_UUID = r"(?P<kind>GPU|MIG)-(?P<digits>[0-9a-f][0-9a-f/-]*)"


def values(tokens: Sequence[str]) -> list[str]:
    """Return the tokens that are no flags."""
    return [token for token in tokens if not token.startswith("--")]


def parts(tokens: Sequence[str]) -> list[str]:
    """Return the values one by one: a token may be several values with commas between them."""
    return [part for token in tokens for part in token.split(",") if part]


def is_number(text: str) -> bool:
    """Return whether a text is a number and nothing else."""
    return re.fullmatch(_NUMBER, text) is not None


def amount(text: str) -> Amount:
    """Parse a size or a percentage; neither may be zero."""
    if percent := re.fullmatch(_PERCENT, text):
        share = Percentage(Decimal(percent["number"]))
        if not 0 < share.percent <= 100:
            raise PolicyError(f"{text} of a GPU's memory cannot be had; more than 0% and at most 100% can.")
        return share
    if is_number(text):
        raise PolicyError(f"{text} of what? Write {readings(text)}.")
    size = units.parse_bytes(text)
    if not size:
        raise PolicyError(f"{text} is nothing; a limit is a size above zero.")
    return size


def readings(number: str) -> str:
    """Return what a number without a unit may mean, as text."""
    value = Decimal(number)
    if value == 0:
        return "a size such as 2GiB, above zero"
    if value < 1:
        return f"{Percentage(value.scaleb(2, EXACT))} (of the GPU), or {number}GiB"
    if value <= 100:
        return f"{number}GiB, or {number}% (of the GPU)"
    return f"{number}MiB, as TensorFlow counts{f', or {number}GiB' if value < 1024 else ''}"


def count(text: str, least: int, what: str) -> int:
    """Parse a number from `least` to `MOST_PARTS`; `what` begins the error's text."""
    if not re.fullmatch(_COUNT, text) or not least <= int(text) <= MOST_PARTS:
        raise PolicyError(f"{what} a number from {least} to {MOST_PARTS}, not {text!r}.")
    return int(text)


def gpu(text: str) -> GpuRef:
    """Parse the name of a GPU."""
    if re.fullmatch(_COUNT, text):
        return int(text)
    if instance := re.fullmatch(_INSTANCE, text):
        return f"{int(instance[1])}.{int(instance[2])}"
    if uuid := re.fullmatch(_UUID, text, re.IGNORECASE | re.ASCII):
        return f"{uuid['kind'].upper()}-{uuid['digits'].lower()}"
    raise PolicyError(f"{text!r} is not a GPU. Write nvidia-smi's number, as in 0, or a UUID, as in GPU-5d1c….")


def flagged(flags: Mapping[str, str]) -> Sequence[GpuRef | None]:
    """Return the GPUs that `--gpu` names; None stands for every GPU, where the flag is not given."""
    return list(dict.fromkeys(map(gpu, listed([flags["--gpu"]])))) if "--gpu" in flags else [None]


def listed(tokens: Sequence[str]) -> list[str]:
    """Return the names of GPUs one by one, where a range may be written as ``0-2``."""
    named: list[str] = []
    for ref in parts(tokens):
        span = re.fullmatch(r"([0-9]{1,4})-([0-9]{1,4})", ref)
        if span and int(span[1]) <= int(span[2]) < int(span[1]) + MOST_PARTS:
            named += map(str, range(int(span[1]), int(span[2]) + 1))
        else:
            named.append(ref)
    return named


def offering(*offered: str) -> Callable[[Sequence[str], Callable[[], Sequence[str]]], list[str]]:
    """Return a function that offers these values to follow a word, where none is typed yet."""
    return lambda typed, _: [] if values(typed) else list(offered)
