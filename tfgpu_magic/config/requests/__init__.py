"""What can be asked of TensorFlow's GPUs: a module a word, and the table that lists them. Pure.

A module has its `WORD`, a frozen class for what is asked (`request.Memory`, `Choice`, `Cpus` or `Reset`), `read` and
`offers` (`PolicyWord`). Whatever a stage asks of it is a method of its class, so there is nothing to add there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tfgpu_magic.config.request import Request
from tfgpu_magic.config.requests import default, growth, limit, pick, split, visible
from tfgpu_magic.config.word import Word


class PolicyWord(Protocol):
    """What a module of a policy word has.

    Attributes:
        WORD: what it says of itself to those who write it.
    """

    WORD: Word

    def read(self, values: Sequence[str], flags: Mapping[str, str], /) -> Sequence[Request]:
        """Read what follows the word.

        Args:
            values: what is no flag.
            flags: each flag with its value ("" where it has none).

        Raises:
            PolicyError: it cannot be read; the error says which part.
        """

    def offers(self, said: Sequence[str], gpus: Callable[[], Sequence[str]], /) -> list[str]:
        """Return the values that may stand beside those that are said.

        Args:
            said: what follows the word already, flags included.
            gpus: gives the labels of the GPUs that can be named.
        """


REQUESTS: tuple[PolicyWord, ...] = (growth, limit, split, visible, pick, default)
"""The words of a policy, in the order of the help."""
