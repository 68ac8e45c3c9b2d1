"""Tells a page which lines a refusal offers, beside its text, so that JupyterLab can make buttons of them.

They travel as a payload of the cell's reply, like the text of `%load`: no payload is saved with a notebook, and a
front end that does not know its source leaves it alone. Everywhere else the refusal is its text, and nothing more.
Source: Jupyter's messaging protocol, "Payloads".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgpu_magic.config import parser
from tfgpu_magic.config.flags import RESTART
from tfgpu_magic.errors import PolicyError, Refused, TfGpuError, TooLate

if TYPE_CHECKING:
    from tfgpu_magic.config.word import Magic

SOURCE = "tfgpu_magic"
"""The name of the payload."""


def announce(shell: Any, line: str, error: TfGpuError, magic: Magic = "tf_gpu") -> None:
    """Attach the lines that an error's text offers to the reply of the cell that runs in a kernel.

    Args:
        shell: IPython's shell.
        line: what follows the magic's name in the line that was refused.
        error: the refusal.
        magic: the magic's name.
    """
    offered = lines(line, error, magic)
    if offered and hasattr(shell, "kernel"):
        shell.payload_manager.write_payload({"source": SOURCE, "line": f"%{magic} {line}", "offers": offered})


def lines(line: str, error: TfGpuError, magic: Magic = "tf_gpu") -> list[str]:
    """Return the lines that an error's text offers in place of a refused one."""
    if not isinstance(error, Refused):
        return []
    words = [*error.ways, *([_restarting(line)] if isinstance(error, TooLate) else [])]
    return [f"%{magic} {word}" for word in words if f"%tf_gpu {word}" in str(error)]


def _restarting(line: str) -> str:
    """Return the words that restart the kernel for the policy of a line."""
    try:
        return f"{parser.parse(line)} {RESTART}"
    except PolicyError:  # another word than a policy's was too late
        return line
