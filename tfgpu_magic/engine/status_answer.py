"""The answer of `%tf_gpu`: one look at the GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfgpu_magic.host import here
from tfgpu_magic.model import html, phrases, text
from tfgpu_magic.model.answer import Answer, Part, headline

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfgpu_magic.model.rows import Table


ONCE = "This is one look. The table that is drawn anew each second needs a notebook; here, say it again."
_TRY = Part([phrases.TRY, f"  {phrases.TRY_COMMAND}"], f"<p>{phrases.TRY}<br><code>{phrases.TRY_COMMAND}</code></p>")


@dataclass(frozen=True, slots=True, repr=False)
class Status(Answer):
    """The rows of one look.

    Attributes:
        table: the rows.
        here: the kind of the viewing process: notebook, session or program.
    """

    table: Table
    here: str = "notebook"

    def once(self) -> Status:
        """Return the same with a note that it is not a live table."""
        return replace(self, table=replace(self.table, notes=(*self.table.notes, ONCE)))

    def _parts(self) -> Iterable[Part | str]:
        table = self.table
        if table.error:
            yield headline(phrases.plain(table.error, longest=400))
            if table.absent:
                yield _TRY
        else:
            yield Part(text.gpus(table, self.here), html.gpus(table, self.here))
            if table.processes:
                yield Part(text.processes(table), html.processes(table))
            yield from phrases.no_holders(table)
        yield from phrases.remarks(table)


def shown(table: Table) -> Status:
    """Make the result of `%tf_gpu` from a table."""
    return Status(phrases.called(table, here()), here())
