"""The words of a policy and its errors, as they are written in a shell. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tfgpu_magic.config.vocabulary import POLICY_WORDS, usage
from tfgpu_magic.errors import Refused, TfGpuError

T = TypeVar("T")

_SAID_OTHERWISE = (
    ("`%tf_gpu?`", "`tfgpu help plan`"),
    ("`%tf_gpu ", "`"),
    ("%tf_gpu", "tfgpu"),
    ("   %env ", "   export "),
)
"""What a notebook's messages say, and what is said for it in a shell."""

WORDS = f"""A POLICY is one or more of these, in quotes and separated by `;`. GPU numbers are
nvidia-smi's.

{usage(POLICY_WORDS)}"""


def in_shell(do: Callable[[], T], line: Callable[[str], str]) -> T:
    """Call a function; an error that it raises says in a shell's words what to do next.

    Args:
        do: what is to be done.
        line: returns the line to paste for another policy.

    Raises:
        TfGpuError: as the function does, with a text for people in a shell.
    """
    try:
        return do()
    except TfGpuError as error:
        raise TfGpuError(text(error, line)) from error


def text(error: TfGpuError, line: Callable[[str], str]) -> str:
    """Return an error's text; the ways out of a refusal are lines to paste."""
    if isinstance(error, Refused):
        ways = "\n  ".join(map(line, error.ways))
        said, rest = f"{error.reason}{error.more}", f"{error.lead}{ways}" if ways else ""
    else:
        said, rest = str(error), ""
    for notebook, shell in _SAID_OTHERWISE:
        said = said.replace(notebook, shell)
    return said + rest
