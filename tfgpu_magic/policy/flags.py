"""Separates the flags in the tokens of a line from the other tokens. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tfgpu_magic.errors import PolicyError

RESTART = "--restart"
"""The flag of the magic that restarts this kernel when it is too late, and applies the policy in the new one."""


def part(tokens: Iterable[str], lacks: Mapping[str, str], usage: str) -> tuple[list[str], dict[str, str]]:
    """Separate flags from the rest.

    Args:
        tokens: the tokens of the line.
        lacks: the flags, each with the error's text if its value is missing; "" for a flag that takes none.
        usage: the end of each error's text: how the line is written.

    Returns:
        The tokens that are neither a flag nor its value, and the flags with their values, "" where there is none.

    Raises:
        PolicyError: a flag is given twice, without its value, or with one that it does not take.
    """
    rest: list[str] = []
    flags: dict[str, str] = {}
    left = iter(tokens)
    for token in left:
        flag, equals, value = token.partition("=")
        if flag not in lacks:
            rest.append(token)
            continue
        if flag in flags:
            raise PolicyError(f"{flag} is given twice.")
        if equals and not lacks[flag]:
            raise PolicyError(f"{flag} takes no value.{usage}")
        if lacks[flag]:
            value = value or next(left, "")
            if not value or value.startswith("--"):
                raise PolicyError(f"{lacks[flag]}{usage}")
        flags[flag] = value
    return rest, flags
