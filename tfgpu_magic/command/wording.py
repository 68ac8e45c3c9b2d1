"""The words of a policy and its errors, as they are written in a shell. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from tfgpu_magic.errors import Refused, TfGpuError
from tfgpu_magic.policy import parser
from tfgpu_magic.policy.parser import POLICY_WORDS, usage

if TYPE_CHECKING:
    from tfgpu_magic.engine.engine import Frameworks

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


def frameworks(policy: str) -> Frameworks:
    """Return for which frameworks a policy is: for all, unless it has a word for TensorFlow alone.

    Raises:
        PolicyError: it is no policy.
    """
    return "all" if parser.parse(policy).of_any_framework else "tensorflow"


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
    except Refused as error:
        ways = "\n  ".join(map(line, error.ways))  # lines to paste
        said = translated(f"{error.beginning}{error.more}") + (f"{error.lead}{ways}" if ways else "")
        raise Refused(said, verdict="", crowded=error.crowded) from error
    except TfGpuError as error:
        raise TfGpuError(translated(str(error))) from error


def translated(said: str) -> str:
    """Return what a notebook's message says, with the lines that people type in a shell."""
    for notebook, shell in _SAID_OTHERWISE:
        said = said.replace(notebook, shell)
    return said
