"""Shows why a GPU ran out of memory: below the cell that it has ended, for `%tf_gpu why`, and in Python."""

from __future__ import annotations

from IPython.display import display

from tfgpu_magic.insight import sampling
from tfgpu_magic.insight.why import errors
from tfgpu_magic.insight.why.explaining import KEPT, explain
from tfgpu_magic.views.why import Why


def keep(error: BaseException, number: int | None) -> None:
    """Keep the last minutes for good where an error says for certain that a GPU has no memory left.

    Args:
        error: the error.
        number: the number of the cell that it has ended, if that is known.
    """
    shortage = errors.shortage(error)
    if shortage is not None and shortage.certain:
        sampling.keep(number)


def show(error: BaseException, number: int | None, began: float | None) -> None:
    """Show below a cell why the error that has ended it says that a GPU has no memory; nothing for other errors.

    Args:
        error: the error.
        number: the cell's number.
        began: when the cell began, in seconds since the epoch.
    """
    if KEPT.has(error, number):
        return  # by an isolated cell, which knows more of its process
    found = explain(error, number, began)
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
