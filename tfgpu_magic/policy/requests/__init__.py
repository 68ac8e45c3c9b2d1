"""The requests of a policy: a module a word, and the table that lists them. Pure.

A module has its `WORD`, a frozen class for the request (`policy.Memory`, `Choice`, `Cpus` or `Reset`), `read` and
`offers` (`PolicyWord`). All that other modules need of a request is a method of its class, so a new word changes none
of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgpu_magic.policy.requests import default, growth, limit, pick, split, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Protocol

    from tfgpu_magic.policy.policy import Request
    from tfgpu_magic.policy.word import Word

    class PolicyWord(Protocol):
        """The members of a module of a policy word.

        Attributes:
            WORD: the description of the word.
        """

        WORD: Word

        def read(self, values: Sequence[str], flags: Mapping[str, str], /) -> Sequence[Request]:
            """Parse what follows the word.

            Args:
                values: the tokens that are no flags.
                flags: each flag with its value ("" where it has none).

            Raises:
                PolicyError: it cannot be parsed; the error says which part.
            """

        def offers(self, typed: Sequence[str], gpus: Callable[[], Sequence[str]], /) -> list[str]:
            """Return the values that may follow those that are typed already.

            Args:
                typed: the tokens that follow the word already, flags included.
                gpus: returns the labels of the GPUs that can be named.
            """


REQUESTS: tuple[PolicyWord, ...] = (growth, limit, split, visible, pick, default)
"""The words of a policy, in the order of the help."""
