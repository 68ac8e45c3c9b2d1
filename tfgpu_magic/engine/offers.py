"""Shows a refusal with its lines to try as data, of which JupyterLab makes buttons: one display."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from tfgpu_magic.ground.answer import OFFERS

if TYPE_CHECKING:
    from tfgpu_magic.ground.message import FrontEnd, Message


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


def offering(shell: Any, message: Message, line: str, front_end: FrontEnd) -> UsageError:
    """Return the error that ends a cell with a message; `line` is as `OfferingError` has it."""
    text = front_end.text(message)
    if hasattr(shell, "kernel"):
        shell._last_traceback = [f"UsageError: {text}"]  # in its reply: what nbclient shows
    parts: list[object] = ["UsageError: ", *front_end.clickable(message)]
    offers = any(isinstance(part, dict) for part in parts) and hasattr(shell, "kernel")
    if not offers or shell.custom_exceptions not in ((), (OfferingError,)):
        return UsageError(text)  # IPython shows no traceback of it; and it has one handler, which may be the user's
    shell.set_custom_exc((OfferingError,), _show)
    return OfferingError(text, line, parts)


def _show(shell: Any, _: object, error: OfferingError, *__: object, **___: object) -> None:
    """Display a refusal, in place of a traceback."""
    data = {"text/plain": f"UsageError: {error}", OFFERS: {"line": error.line, "parts": error.parts}}
    shell.display_pub.publish(data)
