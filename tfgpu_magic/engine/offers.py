"""Shows a refusal with the lines that it offers beside its text, of which JupyterLab makes buttons: one display."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from tfgpu_magic.errors import Refused, TfGpuError, TooLate
from tfgpu_magic.model.answer import OFFERS

if TYPE_CHECKING:
    from tfgpu_magic.policy.word import Magic


class OfferingError(UsageError):
    """A refusal that offers lines, which ends its cell as any `UsageError` does.

    Attributes:
        line: the line that was refused, with its magic; empty where it stands above a cell, as the offered ones do.
        offers: the lines that stand in its text.
    """

    def __init__(self, text: str, line: str, offers: list[str]) -> None:
        super().__init__(text)
        self.line = line
        self.offers = offers

    def _render_traceback_(self) -> list[str]:
        return [f"UsageError: {self}"]  # where something else than a cell shows it, as a widget's callback


def refusal(shell: Any, line: str, error: TfGpuError, text: str, magic: Magic = "tf_gpu") -> UsageError:
    """Return the error that ends a cell whose line was refused.

    Args:
        shell: IPython's shell.
        line: what follows the magic's name in the line that was refused.
        error: why it was refused.
        text: the error's text.
        magic: the magic's name.
    """
    return offering(shell, text, f"%{magic} {line}", lines(error, magic))


def offering(shell: Any, text: str, line: str, offered: list[str]) -> UsageError:
    """Return the error that ends a cell with a text in which lines are offered; see `OfferingError`."""
    if hasattr(shell, "kernel"):
        shell._last_traceback = [f"UsageError: {text}"]  # in its reply: what nbclient shows
    if not offered or not hasattr(shell, "kernel") or shell.custom_exceptions not in ((), (OfferingError,)):
        return UsageError(text)  # IPython shows no traceback of it; and it has one handler, which may be the user's
    shell.set_custom_exc((OfferingError,), _show)
    return OfferingError(text, line, offered)


def _show(shell: Any, _: object, error: OfferingError, *__: object, **___: object) -> None:
    """Display a refusal, in place of a traceback."""
    data = {"text/plain": f"UsageError: {error}", OFFERS: {"line": error.line, "offers": error.offers}}
    shell.display_pub.publish(data)


def lines(error: TfGpuError, magic: Magic = "tf_gpu") -> list[str]:
    """Return the lines that an error's text offers in place of a refused one."""
    ways = error.ways if isinstance(error, Refused) else ()
    restarts = [error.restarts] if isinstance(error, TooLate) and error.restarts else []
    return [f"%{magic} {words}" for words in (*ways, *restarts)]
