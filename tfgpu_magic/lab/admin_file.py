"""The tables of the administrator's file that servers and the doctor go by, and the groups of this user."""

from __future__ import annotations

import contextlib
import grp
import importlib
import os
import sys
from typing import Any

from tfgpu_magic import policy
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.policy import parser, settings


def table(name: str) -> Any:
    """Return a table of the file as it is now; None where there is none.

    Raises:
        PolicyError: the file cannot be read.
    """
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        return toml.loads(policy.FILE.read_text(encoding="utf-8")).get(name)
    except FileNotFoundError:
        return None
    except Exception as error:  # whatever it is, nothing is known of the table
        raise PolicyError(f"{policy.FILE} cannot be read: {type(error).__name__}: {error}.") from error


def why_not_parked() -> str:
    """Return that the file's own ceiling or policy for this user keeps TensorFlow from being parked; empty if not."""
    given = settings.of_file()
    words, _ = given.policy or ("", "")
    with contextlib.suppress(PolicyError):  # a flaw of the policy is told where it is read
        if ceiling := next((ceiling for ceiling, _ in given.ceilings if ceiling), ""):
            why = f"the ceiling there is `{ceiling}`, and `growth --release` keeps to no limit"
        elif words and not any(request.releases for request in parser.parse(words).memory):
            why = f"the policy there is `{words}`"
        else:
            return ""
        return (
            f"`park` in [idle], from {policy.FILE}, moves PyTorch's memory only: TensorFlow gives memory back only "
            f"under `growth --release`, and {why}. A notebook that cannot be parked goes by `stop`."
        )
    return ""


class KnownNames(frozenset[str]):
    """The names and numbers of this user's groups, as the system knows them.

    A directory of users that is away knows nobody. So where a number has no name, it is unknown whether another name is
    among them, and to ask for one raises PolicyError. So does a name that no group has: it is misspelt, or of a
    directory that is away.
    """

    nameless: str = ""

    def __contains__(self, name: object) -> bool:
        found = super().__contains__(name)
        if found or str(name).isdecimal():
            return found
        if self.nameless:
            raise PolicyError(f"{policy.FILE} names {name!r}, and {self.nameless} has no name now.")
        try:
            grp.getgrnam(str(name))
        except KeyError:
            raise PolicyError(
                f"{policy.FILE} names the group {name!r}, which this machine does not know. Mend the name, or write "
                "the number."
            ) from None
        return False


def own_groups() -> KnownNames:
    """Return the names and numbers of this process's Unix groups."""
    numbers = [os.getegid(), *os.getgroups()]
    names, nameless = set(map(str, numbers)), ""
    for number in numbers:
        try:
            names.add(grp.getgrgid(number).gr_name)
        except KeyError:
            nameless = f"the group {number}"
    found = KnownNames(names)
    found.nameless = nameless
    return found
