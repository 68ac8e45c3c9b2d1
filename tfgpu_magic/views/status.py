"""The result of `%tf_gpu`: one look at the GPUs, in a form that every front end can show."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfgpu_magic.host import here
from tfgpu_magic.views import html, phrases, text

if TYPE_CHECKING:
    from tfgpu_magic.monitor.rows import Table


ONCE = "This is one look. The table that is drawn anew each second needs a notebook; here, say it again."


@dataclass(frozen=True, slots=True, repr=False)
class Status:
    """The rows of one look; IPython shows them as HTML or as text, and `print` as text.

    Attributes:
        table: the rows.
        here: the kind of the viewing process: notebook, session or program.
    """

    table: Table
    here: str = "notebook"

    def once(self) -> Status:
        """Return the same with a note that it is not a live table."""
        return replace(self, table=replace(self.table, notes=(*self.table.notes, ONCE)))

    def __repr__(self) -> str:
        return text.render(self.table, here=self.here)

    def _repr_html_(self) -> str:
        return html.render(self.table, here=self.here)


def shown(table: Table) -> Status:
    """Make the result of `%tf_gpu` from a table."""
    return Status(phrases.called(table, here()), here())
