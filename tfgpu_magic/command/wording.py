"""The words of a policy and its errors, as they are written in a shell. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from tfgpu_magic.errors import PolicyError, Refused, TfGpuError
from tfgpu_magic.ground.message import FrontEnd, Line
from tfgpu_magic.policy import parser
from tfgpu_magic.policy.parser import POLICY_WORDS, usage
from tfgpu_magic.policy.word import ParsedLine

if TYPE_CHECKING:
    from tfgpu_magic.policy.decide import Frameworks

T = TypeVar("T")


class Shell(FrontEnd):
    """A shell, in which words of a policy stand in quotes in a line of `tfgpu`.

    Args:
        attempt: returns the line to paste for another policy; with `waits`, for one that waits for room.
    """

    def __init__(self, attempt: Callable[..., str] = str) -> None:
        super().__init__()
        self._attempt = attempt

    def line(self, line: Line) -> str:
        """Return a line as it is typed here."""
        match line.kind:
            case "try":
                return self._attempt(line.words, waits=True) if line.waits else self._attempt(line.words)
            case "help":
                return "tfgpu help plan"
            case "magic":
                return "tfgpu"
            case "setting":
                return f"export {line.words}"
            case "line":
                return line.words
            case _:
                return super().line(line)


SHELL = Shell()

WORDS = f"""A POLICY is one or more of these, in quotes and separated by `;`. GPU numbers are
nvidia-smi's.

{usage(POLICY_WORDS)}"""


def frameworks(policy: str) -> Frameworks:
    """Return for which frameworks a policy is: for all, unless it has a word for TensorFlow alone.

    Raises:
        PolicyError: it is no policy.
    """
    return "all" if parser.parse(policy).of_any_framework else "tensorflow"


def in_shell(do: Callable[[], T], line: Callable[..., str]) -> T:
    """Call a function; an error that it raises says in a shell's words what to do next.

    Args:
        do: what is to be done.
        line: as `Shell` takes it.

    Raises:
        TfGpuError: as the function does, with a text for people in a shell.
    """
    try:
        return do()
    except TfGpuError as error:
        text = Shell(line).text(error.message)
        retryable = error.retryable if isinstance(error, Refused) else {}
        raise Refused(text, verdict=None, retryable=retryable) from error


def port(line: ParsedLine, default: int) -> int:
    """Return the port that `--port` names.

    Raises:
        PolicyError: it is none.
    """
    text = line.flags.get("--port", str(default))
    if not text.isdecimal() or int(text) > 65535:
        raise PolicyError(f"--port is a number up to 65535, not {text!r}.")
    return int(text)
