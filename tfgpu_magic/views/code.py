"""The result of `%tf_gpu` that is source text: as text and as Markdown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, repr=False)
class Code:
    """Source text to copy; a front end highlights it, and IPython's terminal shows it as it is.

    Attributes:
        source: the text.
        language: its language, as Markdown's fences name it.
    """

    source: str
    language: str

    def __repr__(self) -> str:
        return self.source

    def _repr_markdown_(self) -> str:
        return f"```{self.language}\n{self.source.rstrip()}\n```"
