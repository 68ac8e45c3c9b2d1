"""The ceiling: the most that each framework of a process may take of each GPU, whatever its user asks for. Pure.

`resolver` clamps every policy to it, so that no plan, no fallback and no isolated call is made without it. How a
process comes by its ceiling is in `runtime`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tfgpu_magic.errors import PolicyError, Refused
from tfgpu_magic.ground.message import Message, join_lines, msg, paragraph
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.policy import arguments, parser
from tfgpu_magic.policy.memory import Amount, Figures, Percentage, amount_bytes, amount_text, capacity
from tfgpu_magic.policy.policy import Choice, Memory, Policy, Request, reference
from tfgpu_magic.policy.requests.growth import NO_LIMIT, Growth
from tfgpu_magic.policy.requests.limit import Limit
from tfgpu_magic.policy.requests.visible import Visible

NO_GPU = Visible(())
"""The request that any ceiling allows."""


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
        if gpu.capacity is None:
            return self.amounts[0]
        total = gpu.capacity
        return min(self.amounts, key=lambda amount: amount_bytes(amount, total))

    def bytes(self, gpu: Gpu) -> int:
        """Return the most that may be taken of a GPU.

        Raises:
            Refused: it is a share of a figure that the driver does not report.
        """
        return Figures(gpu).bytes(self.amount(gpu))

    @property
    def named(self) -> str:
        """Its text and its source, as a phrase."""
        file = "the administrator's file " * self.where.startswith("/")
        return f"the ceiling `{self}`, from {file}{self.where}"

    def over(self, policy: Policy, gpus: Sequence[Gpu]) -> list[tuple[Gpu, Memory]]:
        """Return the GPUs of which a policy takes more, each with the request that does so.

        Raises:
            Refused: how much a request or the ceiling is depends on a figure that the driver does not report.
        """
        about = ((gpu, policy.about(gpu, gpus)) for gpu in gpus if self.amounts)
        return [(gpu, one) for gpu, one in about if one and sum(one.sizes(Figures(gpu))) > self.bytes(gpu)]

    def clamp(self, policy: Policy, gpus: Sequence[Gpu]) -> Policy:
        """Return the nearest policy that takes no more of any of these GPUs; where they differ, GPU by GPU.

        Raises:
            Refused: as of `over`.
        """
        over = self.over(policy, gpus)
        held: list[Request] = []
        for request in policy:
            if not isinstance(request, Memory):
                held.append(request)
            elif request.releases:
                held.append(Growth() if gpus else request)
            else:
                about = [gpu for gpu in gpus if policy.about(gpu, gpus) == request]
                counts = [self._lowered(request, gpu) if (gpu, request) in over else request for gpu in about]
                if len({*counts}) > 1:
                    held += [one.on_gpu(reference(gpu)) for gpu, one in zip(about, counts, strict=True)]
                else:
                    held += counts[:1] or [request]
        return Policy(tuple(dict.fromkeys(held)))

    def _lowered(self, request: Memory, gpu: Gpu) -> Memory:
        amount = self.amount(gpu)
        return request.within(amount) or Limit(amount, request.gpu, grow=request.grows)

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

    def check(self, policy: Policy, choice: Choice | None, gpus: Sequence[Gpu], snapshot: Snapshot) -> None:
        """Check what is asked now.

        Args:
            policy: what is asked now.
            choice: the request that decides which GPUs are seen.
            gpus: those GPUs.
            snapshot: all GPUs.

        Raises:
            Refused: it passes the ceiling, or cannot be held to any; the error has the nearest that can.
        """
        if not (snapshot.gpus or snapshot.absent) and (choice is None or choice.everything):
            raise _unknown(self, snapshot.error or "")
        if gpus and not self.amounts and (policy.memory or choice in policy.requests):
            raise _no_gpu(self, policy)
        if over := self.over(policy, gpus):
            raise _too_high(self, over, self.clamp(policy, gpus))
        if gpus and any(request.releases for request in policy.memory):
            raise _no_release(self, self.clamp(policy, gpus))

    def notes(self, capped: Sequence[Gpu], *, grows: bool) -> Iterator[Message]:
        """Yield notes on how it changes a policy.

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


def _too_high(ceiling: Ceiling, asked: Sequence[tuple[Gpu, Memory]], allowed: Policy) -> Refused:
    """Return the error for requests that pass the ceiling, with the policy in which they do not."""
    alike: dict[str, list[str]] = {}
    for gpu, request in asked:
        wanted, most = request.wanted(request.sizes(Figures(gpu))), _most(ceiling, gpu)
        what = f"{wanted}, and the ceiling is {most}."
        alike.setdefault(what, []).append(gpu.label)
    lines = [f"GPU {', '.join(labels)}: {what}" for what, labels in alike.items()]
    return Refused(join_lines([*lines, *ceiling.flaws]).with_tries("\nThe most that is allowed:   ", [allowed]))


def _no_release(ceiling: Ceiling, allowed: Policy) -> Refused:
    """Return the error for memory that is to be given back, which nothing can hold under the ceiling."""
    return Refused(
        join_lines([paragraph((f"The ceiling here is `{ceiling}`.", NO_LIMIT)), *ceiling.flaws]).with_tries(
            "\nUp to the ceiling:   ", [allowed]
        )
    )


def _no_gpu(ceiling: Ceiling, policy: Policy) -> Refused:
    """Return the error for requests for GPUs where none may be used."""
    return Refused(
        join_lines([f"No GPU may be used here: the ceiling is `{ceiling}`.", *ceiling.flaws]).with_tries(
            "\nAllowed:   ", [Policy((NO_GPU, *policy.cpus))]
        )
    )


def _unknown(ceiling: Ceiling, why: str) -> Refused:
    """Return the error for GPUs of which nothing is known, so that nothing can be held under it."""
    return Refused(
        paragraph((f"The ceiling here is `{ceiling}`, and it cannot be held now.", why)).with_tries(
            "\nWithout a GPU:   ", [NO_GPU]
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
    """Yield the amounts that can be read in a text that is no ceiling."""
    for token in re.split(r"[\s;,=]+", text):
        try:
            yield arguments.amount(token)
        except PolicyError:
            continue
