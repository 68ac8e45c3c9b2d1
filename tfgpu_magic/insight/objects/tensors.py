"""What holds this process's memory of the GPUs, by name.

Nothing that is found is kept: the results have names, sizes and devices, and no objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfgpu_magic.ground import phrases
from tfgpu_magic.ground.answer import Answer, Part, grid
from tfgpu_magic.ground.message import Line, Message, msg
from tfgpu_magic.ground.units import MIB, rounded
from tfgpu_magic.insight.objects.accounts import Account
from tfgpu_magic.insight.objects.search import search

if TYPE_CHECKING:
    from tfgpu_magic.insight.objects.names import Name, NamedMemory

_HEADS = ("<Name", ">Size", "<What", "<On")  # where there is little room, the last are out of sight first
_NOTHING = msg("Nothing of this process takes memory of a GPU.")
_UNACCOUNTED = "unaccounted"
_NO_OBJECT = msg(
    "What is unaccounted has no object of Python's: what a running function computes with, what is left of an array "
    "when only a slice of it is there, what the framework keeps for itself, and what its allocator gives beyond what "
    "was asked for, which may be as much again."
)
_REST = msg(
    "A dataset iterator does not tell how much it has prefetched: it is given what no array takes, up to what its "
    "buffer has room for."
)
GAVE_UP = msg("This process has more objects than were looked through: what has no name here may have one.")
_SHARED = msg("A variable does not tell where its memory is: a tensor that shares it counts beside it.")
_EACH = "`{line}` shows each of the {count} arrays."
_LONGEST = 80  # characters of a name
_SOME = MIB
"""Bytes from which on what is unaccounted, or counted twice, is worth a sentence."""
_WORTH = 0.01
"""The part of what is in use from which on what is unaccounted has a row."""


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Tensors(Answer):
    """What holds this process's memory of the GPUs.

    It holds none of it: it has names, sizes and devices.

    Attributes:
        holdings: what holds the memory, the largest first; none shares memory with another. Small arrays are together,
            unless all are shown.
        accounts: what each framework has in use on each GPU, and how much of it the arrays take.
        gave_up: whether there were too many objects to look for all names.
    """

    holdings: tuple[NamedMemory, ...] = ()
    accounts: tuple[Account, ...] = ()
    gave_up: bool = False

    def _parts(self) -> Iterable[Part | Message]:
        rows = self._rows()
        return [grid(_HEADS, rows, "Memory by name", long=True) if rows else _NOTHING, *self._remarks()]

    def _rows(self) -> list[list[str]]:
        several = len({account.framework for account in self.accounts}) > 1
        rows = [_row(one, several) for one in self.holdings]
        rows += [
            ["", rounded(account.unaccounted), _UNACCOUNTED, _device_text(account.framework, account.device, several)]
            for account in self.accounts
            if _is_short(account)
        ]
        return rows

    def _remarks(self) -> list[Message]:
        remarks = [_account_text(account) for account in self.accounts]
        if any((account.unaccounted or 0) >= _SOME for account in self.accounts if _is_short(account)):
            remarks.append(_NO_OBJECT)
        if any(_is_over(account) for account in self.accounts):
            remarks.append(_SHARED)
        if self.gave_up:
            remarks.append(GAVE_UP)
        if any(one.rest for one in self.holdings):
            remarks.append(_REST)
        if any(one.count > 1 for one in self.holdings):
            number = sum(one.count for one in self.holdings)
            remarks.append(msg(_EACH, line=Line("tensors --all"), count=f"{number:,}"))
        return remarks


def tensors(*, everything: bool = False) -> Tensors:
    """Return what holds this process's memory of the GPUs, by name. No framework is started for it.

    Names lead to arrays from a notebook's variables, from what IPython keeps of results and errors, from functions
    that run, and from modules of your own. Code that runs in other threads meanwhile may make arrays that are missed.

    Args:
        everything: whether each array stands by itself; else those that are small stand together with their
            neighbours, as soon as there are more than twenty.

    Returns:
        What holds the memory, for all frameworks that use a GPU, the largest first, sizes in bytes; and what each
        framework has in use on each GPU by its own figure. It keeps nothing alive.
    """
    found = search(everything=everything)
    return Tensors(holdings=found.rows, accounts=found.accounts, gave_up=found.gave_up)


def name_text(name: Name, others: Sequence[Name] = ()) -> str:
    """Write the name of an array: ``x``, ``x, in train(), kept by the last error``, ``x, also Out[3]``.

    Args:
        name: the name.
        others: other names that lead to it.
    """
    parts = [f"{name.expression} (inside)" if name.inner and name.parts else name.expression, *name.within]
    text = phrases.clean(", ".join(part for part in parts if part) or "no name leads to it", longest=_LONGEST)
    return f"{text}; also {'; '.join(map(name_text, others))}" if others else text


def row_text(one: NamedMemory) -> str:
    """Write what a row is called."""
    named = one.name.parts or one.name.within or not one.partial
    return name_text(one.name, one.others) if named else "others"


def kind_text(one: NamedMemory) -> str:
    """Write what a row is, and of several how many: ``tensor``, ``978 tensors``."""
    return f"{one.count:,} {'other ' if one.partial else ''}{one.what}s" if one.count > 1 else one.what


def _row(one: NamedMemory, several: bool) -> list[str]:
    return [row_text(one), rounded(one.size), _what_text(one), _device_text(one.framework, one.device, several)]


def _what_text(one: NamedMemory) -> str:
    return " ".join(part for part in (kind_text(one), one.dtype, "×".join(map(str, one.shape))) if part)


def _device_text(framework: str, device: str, several: bool) -> str:
    return f"{framework} {device}" if several else device


def _account_text(account: Account) -> Message:
    text = "{framework} has {in_use} in use on {device}"
    text += "; the arrays take {found} of it" * _is_short(account)
    text += ", {excess} less than the arrays come to" * _is_over(account)
    return msg(
        "{framework} does not tell how much it has in use on {device}." if account.in_use is None else f"{text}.",
        framework=account.framework,
        device=account.device,
        in_use=rounded(account.in_use),
        found=rounded(account.found),
        excess=rounded(account.excess),
    )


def _is_short(account: Account) -> bool:
    """Return whether more of what is in use is unaccounted than allocators round up."""
    missing = account.unaccounted or 0
    return missing > 0 and missing >= _WORTH * (account.in_use or 0)


def _is_over(account: Account) -> bool:
    """Return whether the arrays come to more than is in use, by more than is worth a sentence."""
    return account.excess >= _SOME
