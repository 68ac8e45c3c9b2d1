"""Shows a refusal with its lines to try as data, of which JupyterLab makes buttons: one display."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from tfgpu_magic.ground.answer import OFFERS
from tfgpu_magic.ground.message import FrontEnd, Message

if TYPE_CHECKING:
    from tfgpu_magic.errors import TfGpuError
    from tfgpu_magic.policy.word import Magic


class OfferingError(UsageError):
    """A refusal that offers lines, which ends its cell as any `UsageError` does.

    Attributes:
        line: the line that was refused, with its magic; empty where it stands above a cell, as the offered ones do.
        parts: its text in parts, as `OFFERS` has them.
    """

    def __init__(self, text: str, line: str, parts: list[object]) -> None:
        super().__init__(text)
        self.line = line
        self.parts = parts

    def _render_traceback_(self) -> list[str]:
        return [f"UsageError: {self}"]  # where something else than a cell shows it, as a widget's callback


def refusal(shell: Any, line: str, error: TfGpuError, magic: Magic = "tf_gpu") -> UsageError:
    """Return the error that ends a cell whose line was refused.

    Args:
        shell: IPython's shell.
        line: what follows the magic's name in the line that was refused.
        error: why it was refused.
        magic: the magic's name.
    """
    return offering(shell, error.message, f"%{magic} {line}", FrontEnd(magic))


def offering(shell: Any, message: Message, line: str, front_end: FrontEnd) -> UsageError:
    """Return the error that ends a cell with a message; `line` is as `OfferingError` has it."""
    text = front_end.text(message)
    if hasattr(shell, "kernel"):
        shell._last_traceback = [f"UsageError: {text}"]  # in its reply: what nbclient shows
    if not message.tries or not hasattr(shell, "kernel") or shell.custom_exceptions not in ((), (OfferingError,)):
        return UsageError(text)  # IPython shows no traceback of it; and it has one handler, which may be the user's
    shell.set_custom_exc((OfferingError,), _show)
    return OfferingError(text, line, ["UsageError: ", *front_end.clickable(message)])


def _show(shell: Any, _: object, error: OfferingError, *__: object, **___: object) -> None:
    """Display a refusal, in place of a traceback."""
    data = {"text/plain": f"UsageError: {error}", OFFERS: {"line": error.line, "parts": error.parts}}
    shell.display_pub.publish(data)
