"""Shows why a GPU ran out of memory: below the cell that it has ended, for `%tf_gpu why`, and in Python."""

from __future__ import annotations

from IPython.display import display

from tfgpu_magic.insight.why.explaining import KEPT, explain
from tfgpu_magic.views.why import Why


def show(error: BaseException, number: int | None) -> None:
    """Show below a cell why the error that has ended it says that a GPU has no memory; nothing for other errors.

    Args:
        error: the error.
        number: the cell's number.
    """
    if KEPT.has(error, number):
        return  # by an isolated cell, which knows more of its process
    found = explain(error, number)
    if found is not None:
        display(Why(found))  # type: ignore[no-untyped-call]  # IPython's


def why(error: BaseException | None = None) -> Why | None:
    """Return why a GPU had no memory left, and what would help; tried, and not done.

    Args:
        error: what was raised, by TensorFlow, PyTorch or JAX; None for the last error that was explained.

    Returns:
        The explanation, which a notebook shows as HTML or as text; its `explanation` has the figures, in bytes. None
        where the error is about something else, or none was explained before.

    Examples:
        ``except Exception as error: print(tfgpu_magic.why(error) or error)``
    """
    found = KEPT.last if error is None else explain(error)
    return None if found is None else Why(found)


def last() -> Why:
    """Return what was explained last, or that nothing was."""
    return Why(KEPT.last)
