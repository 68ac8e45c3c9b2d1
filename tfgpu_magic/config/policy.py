"""What can be asked of TensorFlow's GPUs, as frozen data; `words` makes it from text, `plan` acts on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from fractions import Fraction
from typing import TypeAlias

from tfgpu_magic import units

GpuRef: TypeAlias = int | str
"""A GPU as people name it: nvidia-smi's number, ``0.1`` for a MIG instance, or the (start of the) UUID of either."""

_EXACT = Context(prec=28)
"""What a percentage is written with: the program's own context may round to any number of digits."""


@dataclass(frozen=True, slots=True)
class Share:
    """A fraction of a GPU's whole memory, in percent: more than 0, at most 100."""

    percent: Decimal

    def __str__(self) -> str:
        return f"{self.percent.normalize(_EXACT):f}%"

    def of(self, total: int) -> int:
        """Bytes of a GPU of `total` bytes, rounded down."""
        return int(total * Fraction(self.percent) / 100)


Amount: TypeAlias = int | Share
"""Bytes, or a share of a GPU's memory."""


def amount_text(amount: Amount) -> str:
    """Write an amount so that it reads back as the same."""
    return str(amount) if isinstance(amount, Share) else units.exact(amount)


def amount_bytes(amount: Amount, total: int) -> int:
    """The bytes it is on a GPU of `total` bytes."""
    return amount.of(total) if isinstance(amount, Share) else amount


@dataclass(frozen=True, slots=True)
class Growth:
    """Memory growth on every visible GPU, or none of it. TensorFlow knows no other scope."""

    on: bool = True

    def __str__(self) -> str:
        return "growth" if self.on else "growth off"


@dataclass(frozen=True, slots=True)
class Limit:
    """A memory limit on every visible GPU (`gpu` None) or on one; `grow` makes it a cap that is grown into."""

    amount: Amount
    gpu: GpuRef | None = None
    grow: bool = False

    def __str__(self) -> str:
        target = "" if self.gpu is None else f"{self.gpu}="
        return f"limit {target}{amount_text(self.amount)}{' --grow' * self.grow}"


@dataclass(frozen=True, slots=True)
class Split:
    """Logical GPUs on every visible GPU (`gpu` None) or on one: equal shares of what is free, or named sizes."""

    parts: int | tuple[Amount, ...]
    gpu: GpuRef | None = None
    grow: bool = False

    def __str__(self) -> str:
        parts = str(self.parts) if isinstance(self.parts, int) else " ".join(map(amount_text, self.parts))
        target = "" if self.gpu is None else f" --gpu {self.gpu}"
        return f"split {parts}{target}{' --grow' * self.grow}"


@dataclass(frozen=True, slots=True)
class SplitCpu:
    """Logical CPUs, for trying a distribution strategy without a GPU."""

    parts: int

    def __str__(self) -> str:
        return f"split {self.parts} --cpu"


@dataclass(frozen=True, slots=True)
class Visible:
    """Which GPUs TensorFlow sees, and in which order; None is all of them."""

    gpus: tuple[GpuRef, ...] | None

    def __str__(self) -> str:
        if self.gpus is None:
            return "visible all"
        return f"visible {','.join(map(str, self.gpus)) or 'none'}"


@dataclass(frozen=True, slots=True)
class Pick:
    """The `count` GPUs with most free memory, each with at least `need` free."""

    count: int = 1
    need: Amount | None = None

    def __str__(self) -> str:
        count = f" {self.count}" if self.count != 1 else ""
        return f"pick{count}" + (f" --need {amount_text(self.need)}" if self.need is not None else "")


@dataclass(frozen=True, slots=True)
class Default:
    """Nothing: whatever was asked before is dropped."""

    def __str__(self) -> str:
        return "default"


Memory: TypeAlias = Growth | Limit | Split
Request: TypeAlias = Memory | SplitCpu | Visible | Pick | Default


@dataclass(frozen=True, slots=True)
class Policy:
    """What was asked, in the order of asking. Its text reads back as the same policy.

    Examples:
        ==========================  =====================================================
        ``growth``                  ``Policy((Growth(),))``
        ``limit 0=1GiB 1=25%``      ``Policy((Limit(2**30, 0), Limit(Share(25), 1)))``
        ``pick 1; limit 2GiB``      ``Policy((Pick(1), Limit(2**31)))``
        ==========================  =====================================================
    """

    requests: tuple[Request, ...] = ()

    def __str__(self) -> str:
        return "; ".join(map(str, self.requests))

    def __iter__(self) -> Iterator[Request]:
        return iter(self.requests)

    def then(self, later: Policy) -> Policy:
        """Add later words, which replace the earlier ones that they speak about again."""
        requests: list[Request] = list(self.requests)
        for request in later:
            requests = [earlier for earlier in requests if not replaces(request, earlier)]
            if not isinstance(request, Default):
                requests.append(request)
        return Policy(tuple(requests))

    def asks_the_same(self, other: Policy) -> bool:
        """Whether both ask the same. Order counts where one GPU may be named in two ways, by number and by UUID."""
        ours, theirs = list(map(str, self)), list(map(str, other))
        by_name = any(isinstance(getattr(request, "gpu", None), str) for request in self)
        return ours == theirs if by_name else sorted(ours) == sorted(theirs)

    def without(self, dropped: Iterable[Request]) -> Policy:
        """The same without some requests."""
        gone = list(dropped)
        return Policy(tuple(request for request in self.requests if request not in gone))

    def seeing(self, gpus: Iterable[GpuRef]) -> Policy:
        """The same with `Pick` settled to the GPUs that were picked."""
        chosen = Visible(tuple(gpus))
        return replace(self, requests=tuple(chosen if isinstance(r, Pick) else r for r in self.requests))


def replaces(later: Request, earlier: Request) -> bool:
    """Whether later words leave nothing of earlier ones. What differs GPU by GPU is left to the plan, in order."""
    match later:
        case Default():
            return True
        case Visible() | Pick():
            return isinstance(earlier, Visible | Pick)
        case SplitCpu():
            return isinstance(earlier, SplitCpu)
        case Growth() | Limit(gpu=None) | Split(gpu=None):
            return isinstance(earlier, Growth | Limit | Split)
        case Limit(gpu=gpu) | Split(gpu=gpu):
            return isinstance(earlier, Limit | Split) and earlier.gpu == gpu


NOTHING = Policy()
"""Nothing has been asked."""
