"""A policy, and the four natures of the requests that it has; the words themselves are a module each in `requests`.

A request divides the memory of GPUs (`Memory`), chooses the GPUs that TensorFlow sees (`Choice`), divides the CPU
(`Cpus`), or drops what was asked before (`Reset`). All else is up to its methods: the class of a new word must define
what is abstract here, or it cannot be instantiated. `parser` makes a policy from text, `plan` acts on it. Pure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, TypeAlias

from tfgpu_magic.ground.message import Message, format_list, msg
from tfgpu_magic.ground.snapshot import Gpu
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.policy.memory import Amount, Figures

GpuRef: TypeAlias = int | str
"""A GPU as people name it: nvidia-smi's number, ``0.1`` for a MIG instance, or the (start of the) UUID of either."""


def reference(gpu: Gpu) -> GpuRef:
    """Return a policy's name for a known GPU: its number; for a MIG instance its UUID."""
    return gpu.index if gpu.instance is None else gpu.uuid or gpu.label


def find(ref: GpuRef, gpus: Sequence[Gpu]) -> Gpu | Message:
    """Return the GPU that is meant, or why there is none."""
    if isinstance(ref, int):
        matches = [gpu for gpu in gpus if gpu.index == ref and gpu.instance is None]
    else:
        same = [gpu for gpu in gpus if ref.lower() in ((gpu.uuid or "").lower(), gpu.label)]
        number = ref.partition("-")[2]
        if not same and number in {str(gpu.index) for gpu in gpus}:
            return msg(
                "{ref} may begin the UUID of any GPU. For nvidia-smi's GPU {number}, write {number}.",
                ref=ref,
                number=number,
            )
        matches = same or [gpu for gpu in gpus if (gpu.uuid or "").lower().startswith(ref.lower())]
    if not matches:
        return msg("There is no GPU {ref} here; there {are}.", ref=ref, are=_are(gpus))
    if len(matches) > 1:
        return msg("{ref} may be any of {count} GPUs; write more of its UUID.", ref=ref, count=len(matches))
    if matches[0].mig:
        instances = [gpu.label for gpu in gpus if gpu.index == matches[0].index and gpu.instance is not None]
        return msg(
            "GPU {ref} is in MIG mode; name an instance of it: {gpus}.",
            ref=ref,
            gpus=", ".join(instances) or "it has none",
        )
    return matches[0]


def _are(gpus: Sequence[Gpu]) -> str | Message:
    labels = [gpu.label for gpu in gpus]
    if not labels:
        return "are no GPUs"
    return f"is GPU {labels[0]}" if len(labels) == 1 else msg("are GPUs {gpus}", gpus=format_list(labels))


class _BaseRequest(ABC):
    """The base of all requests."""

    __slots__ = ()

    @abstractmethod
    def __str__(self) -> str:
        """Return it as text that is parsed as the same request."""

    @property
    def names_gpus(self) -> bool:
        """Whether it is possible only where GPUs are known, as it names some or counts them."""
        return False

    @abstractmethod
    def replaces(self, earlier: Request) -> bool:
        """Return whether it replaces an earlier request. Differences GPU by GPU are left to `resolver`."""

    def among(self, is_there: Callable[[GpuRef], bool]) -> Request | None:
        """Return the same for those of its GPUs that are there; None where nothing is left of it."""
        del is_there
        return self  # type: ignore[return-value]  # every request is of one of the natures


class Memory(_BaseRequest):
    """A request on how the memory of every visible GPU, or of one, is taken.

    Attributes:
        gpu: the GPU that it is about; None is every one.
        limited: whether it limits what is taken, which needs TensorFlow's own API; else it is about growth only.
        of_any_framework: whether other frameworks than TensorFlow can be asked it, too.
    """

    __slots__ = ()

    gpu: GpuRef | None = None
    limited: ClassVar[bool] = True
    of_any_framework: ClassVar[bool] = True

    @property
    @abstractmethod
    def grows(self) -> bool:
        """Whether memory is taken as it is needed, and not at once."""

    @property
    def releases(self) -> bool:
        """Whether memory that TensorFlow does not use goes back to the driver while it lives; no limit holds then."""
        return False

    @property
    @abstractmethod
    def of_free(self) -> bool:
        """Whether its sizes are parts of what is free, so that they leave CUDA's libraries their room."""

    @property
    @abstractmethod
    def need(self) -> Amount | None:
        """The amount that it asks of one GPU in all; None where that is not known."""

    @abstractmethod
    def sizes(self, gpu: Figures) -> tuple[int, ...]:
        """Return the bytes of each logical GPU to make of a GPU, in whole MiB; none where there is no limit.

        Raises:
            Refused: they depend on a figure that the driver does not report.
        """

    @abstractmethod
    def growing(self, *, on: bool) -> Memory:
        """Return the same, its memory taken as it is needed, or at once."""

    @abstractmethod
    def on_gpu(self, gpu: GpuRef | None) -> Memory:
        """Return the same for one GPU, or for every one."""

    @abstractmethod
    def less(self, size: int) -> Memory | None:
        """Return the nearest request that takes no more than so many bytes of a GPU; None where none is near."""

    def within(self, amount: Amount) -> Memory | None:
        """Return the nearest request that takes no more than this amount of a GPU; None for a `limit` of it."""
        del amount
        return None

    @abstractmethod
    def settled(self, limits: tuple[int, ...], gpu: GpuRef | None) -> Memory:
        """Return the same for a process that has leased so many bytes for each logical GPU."""

    def leased(self, limits: tuple[int, ...], usable: int, context: int) -> tuple[int, ...]:
        """Return the bytes of each logical GPU that an isolated call leases; an empty tuple is the whole GPU.

        Parts of what is free are not known until the process queries the GPU, so such a call has the GPU to itself.

        Args:
            limits: the limits in a process that is no isolated call.
            usable: bytes of the GPU that processes can have.
            context: bytes that CUDA's context takes.
        """
        del usable, context
        return () if self.of_free else limits

    def for_framework(self, framework: str) -> Memory:
        """Return what it is for one of several frameworks; for most requests the same.

        Args:
            framework: the framework's name for people.
        """
        del framework
        return self

    def wanted(self, limits: tuple[int, ...]) -> str:
        """Return what is asked of a GPU, as it was written and in bytes: ``40% is 3.2 GiB``."""
        return f"the limit is {rounded(sum(limits))}"

    def smallest(self, limits: tuple[int, ...]) -> str:
        """Return the smallest limit of a GPU as it was written."""
        return rounded(min(limits))

    @property
    def names_gpus(self) -> bool:
        """Whether it names a GPU."""
        return self.gpu is not None

    def replaces(self, earlier: Request) -> bool:
        """Return whether both are about the same GPU, or this one about all GPUs."""
        return isinstance(earlier, Memory) and (self.gpu is None or earlier.gpu == self.gpu)

    def among(self, is_there: Callable[[GpuRef], bool]) -> Request | None:
        """Return itself, if its GPU is there."""
        return self if self.gpu is None or is_there(self.gpu) else None


class Sized(Memory):
    """A request for so much of every visible GPU, or of one; its class is a dataclass with these fields.

    Attributes:
        grow: whether the size is a cap that is grown into, and not taken at once.
    """

    __slots__ = ()

    grow: bool = False

    @property
    def grows(self) -> bool:
        """Whether it is a cap."""
        return self.grow

    def growing(self, *, on: bool) -> Memory:
        """Return the same as a cap, or as a limit that is taken at once."""
        return replace(self, grow=on)  # type: ignore[type-var]  # see above

    def on_gpu(self, gpu: GpuRef | None) -> Memory:
        """Return the same for one GPU, or for every one."""
        return replace(self, gpu=gpu)  # type: ignore[type-var]  # as above


class Candidates(NamedTuple):
    """The GPUs that a request picks from, as things are now.

    Attributes:
        given: the GPUs that this process may have.
        useful: those of them that TensorFlow uses, and whose free memory is known.
        claims: how many other kernels have picked each GPU, by UUID, with a tie-breaker below one; see `ProcessState`.
        bound: the reason why there are no more GPUs than those that are given; None if none is hidden.
    """

    given: Sequence[Gpu]
    useful: Sequence[Gpu]
    claims: Mapping[str, float]
    bound: Message | None


class Choice(_BaseRequest):
    """A request on which GPUs TensorFlow sees, and in which order: all, those that it names, or those that it picks.

    Attributes:
        picks: whether it depends on what is free now, so that only one process at a time may choose.
        count: how many GPUs it picks.
        or_cpu: whether TensorFlow uses the CPU if it can pick none.
    """

    __slots__ = ()

    picks: ClassVar[bool] = False
    count: int = 0
    or_cpu: bool = False

    @property
    def everything(self) -> bool:
        """Whether all GPUs are seen, and none is named."""
        return False

    @property
    def refs(self) -> Sequence[GpuRef]:
        """The GPUs that it names, in its order."""
        return ()

    def pick(self, gpus: Candidates) -> Sequence[Gpu]:
        """Return the GPUs that TensorFlow is to see, in its order, of a request that `picks`.

        Raises:
            Refused: there are too few.
        """
        del gpus
        return ()

    def settled(self, gpus: Sequence[GpuRef]) -> Choice:
        """Return the choice that is in force once these GPUs were chosen."""
        del gpus
        return self

    @abstractmethod
    def easier(self, gpus: Sequence[GpuRef]) -> Iterator[Choice]:
        """Yield similar choices that are possible with these GPUs, the nearest first."""

    def replaces(self, earlier: Request) -> bool:
        """Return whether both choose GPUs."""
        return isinstance(earlier, Choice)


@dataclass(frozen=True, slots=True)
class Cpus(_BaseRequest):
    """A request for so many logical CPUs, for trying a distribution strategy without a GPU."""

    count: int

    def __str__(self) -> str:
        return f"split {self.count} --cpu"

    def replaces(self, earlier: Request) -> bool:
        """Return whether both divide the CPU."""
        return isinstance(earlier, Cpus)


class Reset(_BaseRequest):
    """A request to drop whatever was asked before."""

    __slots__ = ()

    def replaces(self, earlier: Request) -> bool:
        """Return whether it replaces an earlier request, which it always does."""
        del earlier
        return True


Request: TypeAlias = Memory | Choice | Cpus | Reset


@dataclass(frozen=True, slots=True)
class Policy:
    """The requests, in the order in which they were made. Its text is parsed as the same policy.

    Examples:
        ==========================  ==========================================================
        ``growth``                  ``Policy((Growth(),))``
        ``limit 0=1GiB 1=25%``      ``Policy((Limit(2**30, 0), Limit(Percentage(25), 1)))``
        ``pick 1; limit 2GiB``      ``Policy((Pick(1), Limit(2**31)))``
        ==========================  ==========================================================
    """

    requests: tuple[Request, ...] = ()

    def __str__(self) -> str:
        return "; ".join(map(str, self.requests))

    def __iter__(self) -> Iterator[Request]:
        return iter(self.requests)

    @property
    def memory(self) -> tuple[Memory, ...]:
        """The requests about the memory of GPUs."""
        return tuple(request for request in self.requests if isinstance(request, Memory))

    @property
    def choice(self) -> Choice | None:
        """The choice of the GPUs that are seen; of several the last."""
        return next((request for request in reversed(self.requests) if isinstance(request, Choice)), None)

    @property
    def cpus(self) -> tuple[Cpus, ...]:
        """The request about the CPU, if there is one."""
        return tuple(request for request in self.requests if isinstance(request, Cpus))

    @property
    def of_any_framework(self) -> bool:
        """Whether every framework can be asked it, and not only TensorFlow."""
        return all(request.of_any_framework for request in self.memory)

    @property
    def for_all(self) -> Policy:
        """Those of its requests about memory that can be asked of every framework."""
        return Policy(tuple(request for request in self.memory if request.of_any_framework))

    def about(self, gpu: Gpu, gpus: Sequence[Gpu]) -> Memory | None:
        """Return the request about the memory of one of these GPUs that counts: the last for it, or for every GPU."""
        there = (request for request in reversed(self.memory) if request.gpu is None or find(request.gpu, gpus) == gpu)
        return next(there, None)

    def then(self, later: Policy) -> Policy:
        """Return the policy with later requests added, which replace the earlier ones about the same."""
        requests: list[Request] = list(self.requests)
        for request in later:
            requests = [earlier for earlier in requests if not request.replaces(earlier)]
            if not isinstance(request, Reset):
                requests.append(request)
        return Policy(tuple(requests))

    def asks_the_same(self, other: Policy) -> bool:
        """Return whether both ask the same. Order counts if a GPU may be named twice, by number and by UUID."""
        ours, theirs = list(map(str, self)), list(map(str, other))
        by_name = any(isinstance(request.gpu, str) for request in self.memory)
        return ours == theirs if by_name else sorted(ours) == sorted(theirs)

    def for_framework(self, framework: str) -> Policy:
        """Return what the policy is for one of several frameworks."""
        return Policy(tuple(r.for_framework(framework) if isinstance(r, Memory) else r for r in self))

    def without(self, dropped: Iterable[Request]) -> Policy:
        """Return the policy without some requests."""
        gone = list(dropped)
        return Policy(tuple(request for request in self.requests if request not in gone))

    def among(self, is_there: Callable[[GpuRef], bool]) -> Policy:
        """Return the policy for those of its GPUs that are there."""
        kept = (request.among(is_there) for request in self.requests)
        return Policy(tuple(request for request in kept if request is not None))

    def seeing(self, gpus: Sequence[GpuRef]) -> Policy:
        """Return the policy with its choice of GPUs replaced by the GPUs that were chosen."""
        return Policy(tuple(r.settled(gpus) if isinstance(r, Choice) else r for r in self.requests))


NOTHING = Policy()
"""The policy without any request."""
