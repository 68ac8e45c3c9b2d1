"""What a word of `%tf_gpu` says of itself: its name, how it is written, its meaning and its flags. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """A word that `%tf_gpu` understands.

    Attributes:
        name: the word.
        usage: how it is written, a form each.
        meaning: what it does, for the help and for README's table.
        flags: its flags, each with whether a value follows.
    """

    name: str
    usage: tuple[str, ...]
    meaning: str
    flags: tuple[tuple[str, bool], ...] = ()

    @property
    def forms(self) -> str:
        """A sentence with the forms in which it is written."""
        return " Write " + " or ".join(f"`%tf_gpu {form}`" for form in self.usage) + "."
