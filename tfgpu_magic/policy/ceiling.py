"""The ceiling: the most that each framework of a process may take of each GPU, whatever its user asks for. Pure.

`resolver` holds what is taken of each GPU to it, whatever the policy is, so that no plan, no fallback and no isolated
call is made without it. How a process comes by its ceiling is in `runtime`.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tfgpu_magic.errors import PolicyError, Refused
from tfgpu_magic.ground.message import Message, in_a_row, in_lines, msg
from tfgpu_magic.ground.snapshot import Gpu
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.policy import arguments, parser
from tfgpu_magic.policy.memory import Amount, Figures, Percentage, amount_bytes, amount_text, capacity
from tfgpu_magic.policy.policy import Choice, Memory, Policy, Request
from tfgpu_magic.policy.requests.growth import NO_LIMIT, Growth
from tfgpu_magic.policy.requests.limit import Limit
from tfgpu_magic.policy.requests.visible import Visible

NO_GPU = Visible(())
"""The request that any ceiling allows."""

_Figured: TypeAlias = Callable[[Gpu], Figures]


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most that each framework of a process may take of each GPU. Its text is read as the same ceiling.

    Attributes:
        amounts: at most one share and one size, of which on each GPU the lower holds; none where no GPU may be used.
        flaws: what could not be understood of its text.
        where: its source, as a phrase.

    Examples:
        ===============================  ==========================================
        ``limit 40%``                    ``Ceiling((Percentage(40),))``
        ``limit 40%; limit 4GiB``        ``Ceiling((Percentage(40), 2**32))``
        ``visible none``                 ``Ceiling(())``
        ===============================  ==========================================
    """

    amounts: tuple[Amount, ...]
    flaws: tuple[Message, ...] = ()
    where: str = field(default="", compare=False)

    def __str__(self) -> str:
        return "; ".join(f"limit {amount_text(amount)}" for amount in self.amounts) or str(NO_GPU)

    def amount(self, gpu: Gpu) -> Amount:
        """Return the amount that holds on a GPU; of those that are unknown there, the first."""
        if gpu.most is None:
            return self.amounts[0]
        total = gpu.most
        return min(self.amounts, key=lambda amount: amount_bytes(amount, total))

    def bytes(self, gpu: Gpu) -> int:
        """Return the most that may be taken of a GPU.

        Raises:
            Refused: it is a share of a figure that the driver does not report.
        """
        return Figures(gpu).bytes(self.amount(gpu))

    @property
    def named(self) -> str:
        """It as a phrase, with its source."""
        file = "the administrator's file " * self.where.startswith("/")
        return f"the ceiling `{self}`, from {file}{self.where}"

    def passed_by(self, request: Memory, figures: Figures) -> bool:
        """Tell whether a request takes more of a GPU."""
        return sum(request.sizes(figures)) > self.bytes(figures.gpu)

    def lowered(self, request: Memory, gpu: Gpu) -> Memory:
        """Return the nearest request that takes no more of a GPU."""
        amount = self.amount(gpu)
        return request.within(amount) or Limit(amount, request.gpu, grow=request.grows)

    def under(self, request: Memory, gpus: Sequence[Gpu], figures: _Figured) -> Memory:
        """Return the nearest request that takes no more of any of these GPUs; itself where that is unknown."""
        if request.releases:
            return Growth()
        with contextlib.suppress(Refused):
            for gpu in gpus if self.amounts else ():
                if self.passed_by(request, figures(gpu)):
                    request = self.lowered(request, gpu)
        return request

    def clamped(self, request: Memory | None, figures: Figures, *, grows: bool) -> Memory:
        """Return the request that counts on a GPU: a limit as high as the ceiling where nothing lower is asked.

        Args:
            request: what is asked of the GPU's memory; None where nothing is.
            figures: the GPU.
            grows: whether memory grows where no limit is asked.
        """
        if request is None or not request.limited:
            return Limit(self.amount(figures.gpu), grow=grows)
        return self.lowered(request, figures.gpu) if self.passed_by(request, figures) else request

    def lower_of(self, other: Ceiling) -> Ceiling:
        """Return a ceiling that is nowhere higher than either."""
        flaws = (*self.flaws, *(flaw for flaw in other.flaws if flaw not in self.flaws))
        if not (self.amounts and other.amounts):
            return Ceiling((), flaws)
        amounts = (*self.amounts, *other.amounts)
        shares = [amount for amount in amounts if isinstance(amount, Percentage)]
        sizes = [amount for amount in amounts if isinstance(amount, int)]
        least = min(shares, key=lambda share: share.percent) if shares else None
        lower: tuple[Amount, ...] = (*([] if least is None else [least]), *([min(sizes)] if sizes else []))
        whole = next((one.where for one in (other, self) if one.amounts == lower), f"{self.where} and {other.where}")
        return Ceiling(lower, flaws, whole)

    def check(
        self, words: Sequence[tuple[Gpu, Memory | None]], choice: Choice | None, policy: Policy, figures: _Figured
    ) -> None:
        """Check what is asked now; what was asked before is lowered.

        Args:
            words: the GPUs that are to be seen, each with the request about its memory.
            choice: the request that decides which GPUs are seen.
            policy: what is asked now.
            figures: returns a GPU's figures beside what others are promised of it.

        Raises:
            Refused: it passes the ceiling, or cannot be held to any; the error has the nearest that can.
        """
        if not self.amounts:
            if policy.memory or (choice is not None and choice in policy.requests):
                raise _no_gpu(self, policy)
            return
        now = [(gpu, request) for gpu, request in words if request is not None and request in policy.requests]
        if asked := [(gpu, request) for gpu, request in now if self.passed_by(request, figures(gpu))]:
            raise _too_high(self, asked, policy, figures)
        if any(request.releases for _, request in now):
            raise _no_release(self, policy)

    def notes(self, capped: Sequence[Gpu], *, grows: bool) -> Iterator[Message]:
        """Give notes on what it does to a policy.

        Args:
            capped: the GPUs of which nothing lower is asked.
            grows: whether memory grows there.
        """
        yield from self.flaws
        if not self.amounts:
            yield msg("No GPU may be used here: the ceiling is `{ceiling}`.", ceiling=self)
        elif capped:
            yield msg(
                "The ceiling here is `{ceiling}`, and nothing lower was asked of GPU {gpus}: {what}.",
                ceiling=self,
                gpus=", ".join(gpu.label for gpu in capped),
                what="memory grows up to it" if grows else "so much is taken",
            )

    def unknown(self, why: str) -> Refused:
        """Return the error for GPUs of which nothing is known, so that nothing can be held under it."""
        return Refused(
            in_a_row((f"The ceiling here is `{self}`, and it cannot be held now.", why)).offering(
                "\nWithout a GPU:   ", [NO_GPU]
            )
        )


def read(text: str) -> Ceiling:
    """Read a ceiling: one limit for every GPU, or several with ``;`` between them, or ``visible none``.

    Raises:
        PolicyError: it is not a ceiling.
    """
    found: list[Ceiling] = []
    for part in filter(str.strip, text.split(";")):
        for request in parser.parse(part):
            if isinstance(request, Limit) and request.gpu is None:
                found.append(Ceiling((request.amount,)))
            elif request == NO_GPU:
                found.append(Ceiling(()))
            else:
                raise PolicyError(
                    f"`{request}` is no ceiling. A ceiling is one limit for all GPUs alike: `limit 40%` or `limit "
                    "4GiB`; or `visible none`, where no GPU may be used."
                )
    if not found:
        raise PolicyError("A ceiling of how much? Write `limit 40%` or `limit 4GiB`.")
    return functools.reduce(Ceiling.lower_of, found)


def safe(text: str, where: str) -> Ceiling:
    """Return a ceiling from its text, whatever that is; what it allows is never more than was meant, and may be less.

    Where it cannot be read, the lowest amounts in it hold; and if it has none, no GPU may be used.

    Args:
        text: its text.
        where: its source, as a phrase such as ``the configuration``.
    """
    try:
        return replace(read(text), where=where)
    except PolicyError as error:
        found = [Ceiling((amount,)) for amount in _amounts(text)]
        held = functools.reduce(Ceiling.lower_of, found) if found else Ceiling(())
        why = str(error).partition("\n")[0]
        flaw = msg(
            "The ceiling `{text}`, from {where}, was not understood: {why} `{held}` holds.",
            text=text,
            where=where,
            why=why,
            held=held,
        )
        return Ceiling(held.amounts, (flaw,), where)


def _too_high(ceiling: Ceiling, asked: Sequence[tuple[Gpu, Memory]], policy: Policy, figures: _Figured) -> Refused:
    """Return the error for requests that pass the ceiling, with the policy in which they do not."""
    lower_ones: Mapping[Request, Memory] = {r: ceiling.lowered(r, gpu) for gpu, r in asked}
    alike: dict[str, list[str]] = {}
    for gpu, request in asked:
        wanted, most = request.wanted(request.sizes(figures(gpu))), _most(ceiling, gpu)
        what = f"{wanted}, and the ceiling is {most}."
        alike.setdefault(what, []).append(gpu.label)
    lines = [f"GPU {', '.join(labels)}: {what}" for what, labels in alike.items()]
    allowed = Policy(tuple(dict.fromkeys(lower_ones.get(request, request) for request in policy)))
    return Refused(in_lines([*lines, *ceiling.flaws]).offering("\nThe most that is allowed:   ", [allowed]))


def _no_release(ceiling: Ceiling, policy: Policy) -> Refused:
    """Return the error for memory that is to be given back, which nothing can hold under the ceiling."""
    allowed = Policy(tuple(Growth() if isinstance(r, Memory) and r.releases else r for r in policy))
    return Refused(
        in_lines([in_a_row((f"The ceiling here is `{ceiling}`.", NO_LIMIT)), *ceiling.flaws]).offering(
            "\nUp to the ceiling:   ", [allowed]
        )
    )


def _no_gpu(ceiling: Ceiling, policy: Policy) -> Refused:
    """Return the error for requests for GPUs where none may be used."""
    _, _, cpus = policy.by_nature()
    return Refused(
        in_lines([f"No GPU may be used here: the ceiling is `{ceiling}`.", *ceiling.flaws]).offering(
            "\nAllowed:   ", [Policy((NO_GPU, *cpus))]
        )
    )


def _most(ceiling: Ceiling, gpu: Gpu) -> str:
    """Return the ceiling of a GPU as it was written, a share's size beside it."""
    amount = ceiling.amount(gpu)
    written = f"`limit {amount_text(amount)}`"
    if not isinstance(amount, Percentage):
        return written
    size = rounded(ceiling.bytes(gpu))
    if gpu.limit is None:
        return f"{written}, {size} here"
    return f"{written}, {size} of {capacity(gpu)}"


def _amounts(text: str) -> Iterator[Amount]:
    """Give the amounts that can be read in a text that is no ceiling."""
    for token in re.split(r"[\s;,=]+", text):
        try:
            yield arguments.amount(token)
        except PolicyError:
            continue
