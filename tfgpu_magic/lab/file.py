"""The tables of the administrator's file that servers, the doctor and the Hub's culler go by, and a user's groups."""

from __future__ import annotations

import contextlib
import grp
import importlib
import os
import pwd
import sys
from typing import Any

from tfgpu_magic import policy
from tfgpu_magic.errors import PolicyError


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


def names_of(user: str | None = None) -> frozenset[str]:
    """Return a user's name and number; by default those of this process.

    Raises:
        KeyError: no user has that name here.
    """
    number = os.geteuid() if user is None else pwd.getpwnam(user).pw_uid
    with contextlib.suppress(KeyError):
        return frozenset({str(number), user or pwd.getpwuid(number).pw_name})
    return frozenset({str(number)})


def groups_of(user: str | None = None) -> frozenset[str]:
    """Return the names and numbers of a user's Unix groups; by default those of this process.

    Raises:
        KeyError: no user has that name here.
    """
    own = [os.getegid(), *os.getgroups()]
    numbers = own if user is None else os.getgrouplist(user, pwd.getpwnam(user).pw_gid)
    names = set(map(str, numbers))
    for number in numbers:
        with contextlib.suppress(KeyError):
            names.add(grp.getgrgid(number).gr_name)
    return frozenset(names)
