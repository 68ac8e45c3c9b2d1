"""What each request of a policy says of itself, by its nature; the words themselves are a module each in `requests`.

A request has one of four natures: it divides the memory of GPUs (`Memory`), chooses the GPUs that TensorFlow sees
(`Choice`), divides the CPU (`Cpus`), or drops what was asked before (`Reset`). All else is told by its methods: a new
word must answer what is abstract here, or its class cannot be instantiated. Pure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, NoReturn, Protocol, TypeAlias

from tfgpu_magic.config.amount import Amount
from tfgpu_magic.config.memory import Figures
from tfgpu_magic.monitor.snapshot import Gpu
from tfgpu_magic.units import rounded

GpuRef: TypeAlias = int | str
"""A GPU as people name it: nvidia-smi's number, ``0.1`` for a MIG instance, or the (start of the) UUID of either."""


def reference(gpu: Gpu) -> GpuRef:
    """How a policy names a GPU that is known: by its number, a MIG instance by its UUID."""
    return gpu.index if gpu.instance is None else gpu.uuid or gpu.label


class _Request(ABC):
    """What all requests have."""

    __slots__ = ()

    @abstractmethod
    def __str__(self) -> str:
        """Write it so that it reads back as the same."""

    @property
    @abstractmethod
    def names_gpus(self) -> bool:
        """Whether it can be had only where GPUs are known, as it names some or counts them."""

    @abstractmethod
    def replaces(self, earlier: Request) -> bool:
        """Whether it leaves nothing of an earlier one. What differs GPU by GPU is left to the plan, in order."""

    @abstractmethod
    def among(self, is_there: Callable[[GpuRef], bool]) -> Request | None:
        """Return the same for those of its GPUs that are there; None where nothing is left of it."""


class Memory(_Request):
    """How the memory of every visible GPU, or of one, is taken.

    Attributes:
        gpu: the GPU that it is about; None is every one.
        limited: whether it limits what is taken, for which TensorFlow must be told; else it says no more than `grows`.
    """

    __slots__ = ()

    gpu: GpuRef | None = None
    limited: ClassVar[bool] = True

    @property
    @abstractmethod
    def grows(self) -> bool:
        """Whether memory is taken as it is needed, and not at once."""

    @property
    @abstractmethod
    def of_free(self) -> bool:
        """Whether its sizes are parts of what is free, so that they leave CUDA's libraries their room."""

    @property
    @abstractmethod
    def need(self) -> Amount | None:
        """What it asks of one GPU in all; None where that is no known amount."""

    @abstractmethod
    def sizes(self, gpu: Figures) -> tuple[int, ...]:
        """Return the bytes of each logical GPU to make of a GPU, in whole MiB; none where there is no limit.

        Raises:
            Refused: they depend on a figure that the driver does not tell.
        """

    @abstractmethod
    def growing(self, *, on: bool) -> Memory:
        """Return the same, its memory taken as it is needed, or at once."""

    @abstractmethod
    def on_gpu(self, gpu: GpuRef | None) -> Memory:
        """Return the same for one GPU, or for every one."""

    @abstractmethod
    def less(self, size: int) -> Memory | None:
        """Return the nearest to it that takes no more than so many bytes of a GPU; None where none is near."""

    @abstractmethod
    def settled(self, limits: tuple[int, ...], gpu: GpuRef | None) -> Memory:
        """Return the same for a process that has leased so many bytes for each logical GPU."""

    def leased(self, limits: tuple[int, ...], usable: int, context: int) -> tuple[int, ...]:
        """Return the bytes of each logical GPU that an isolated call leases; none is the whole GPU.

        What are parts of what is free is not known until the process looks, so it has the GPU to itself.

        Args:
            limits: those that a process takes to which it is applied as it stands.
            usable: bytes of the GPU that processes can have.
            context: bytes that CUDA's context takes.
        """
        del usable, context
        return () if self.of_free else limits

    @property
    def lease_note(self) -> str:
        """What one must know of it in an isolated call, where it cannot be had; a sentence, or nothing."""
        return ""

    def wanted(self, limits: tuple[int, ...]) -> str:
        """Return what is asked of a GPU, as it was said and in bytes: ``40% is 3.2 GiB``."""
        return f"the limit is {rounded(sum(limits))}"

    def smallest(self, limits: tuple[int, ...]) -> str:
        """Return the smallest limit of a GPU as it was said."""
        return rounded(min(limits))

    @property
    def names_gpus(self) -> bool:
        """Whether it names one."""
        return self.gpu is not None

    def replaces(self, earlier: Request) -> bool:
        """Whether both are about the same GPU, or this one about all; what was said of every GPU is no one's own."""
        return isinstance(earlier, Memory) and (self.gpu is None or earlier.gpu == self.gpu)

    def among(self, is_there: Callable[[GpuRef], bool]) -> Request | None:
        """Return itself, if its GPU is there."""
        return self if self.gpu is None or is_there(self.gpu) else None


class Candidates(Protocol):
    """The GPUs that a choice is made from, as things are now."""

    @property
    def claims(self) -> Mapping[str, float]:
        """Of each GPU, by UUID, how many others have picked it, and a lot below one; see `ProcessState`."""

    @property
    def bound(self) -> str:
        """Why there are no others than those that are given, one sentence; empty where nothing hides any."""

    def named(self, ref: GpuRef) -> Gpu:
        """Return the GPU that is meant.

        Raises:
            Refused: there is none, or nobody can tell which.
        """

    def everything(self) -> Sequence[Gpu]:
        """Return all GPUs that a process can be shown."""

    def given(self, count: int) -> Sequence[Gpu]:
        """Return the GPUs of which a process that needs so many may have any.

        Raises:
            Refused: nobody can tell.
        """

    def useful(self, given: Sequence[Gpu]) -> Sequence[Gpu]:
        """Return those that TensorFlow uses of the GPUs that it is given, and whose free memory is known."""

    def best(self, gpus: Sequence[Gpu]) -> Sequence[Gpu]:
        """Return those that TensorFlow's build surely has code for; where there are none, all of them."""


class Choice(_Request):
    """Which GPUs TensorFlow sees, and in which order."""

    __slots__ = ()

    @property
    @abstractmethod
    def picks(self) -> bool:
        """Whether it depends on what is free now: one process at a time picks."""

    @property
    @abstractmethod
    def everything(self) -> bool:
        """Whether all GPUs are seen, and none is named."""

    @property
    @abstractmethod
    def refs(self) -> Sequence[GpuRef]:
        """The GPUs that it names, in its order."""

    @abstractmethod
    def choose(self, gpus: Candidates) -> Sequence[Gpu]:
        """Return the GPUs that TensorFlow is to see, in its order.

        Raises:
            Refused: there are not such GPUs, or too few.
        """

    @abstractmethod
    def settled(self, gpus: Sequence[GpuRef]) -> Choice:
        """Return what holds from now on, where these GPUs were chosen."""

    @abstractmethod
    def easier(self, gpus: Sequence[GpuRef]) -> Iterator[Choice]:
        """Give choices near to it that these GPUs allow, the nearest first."""

    def replaces(self, earlier: Request) -> bool:
        """Whether both choose GPUs."""
        return isinstance(earlier, Choice)


class Cpus(_Request):
    """How many logical CPUs there are."""

    __slots__ = ()

    @property
    @abstractmethod
    def count(self) -> int:
        """How many logical CPUs TensorFlow is to make."""

    @property
    def names_gpus(self) -> bool:
        """Not one."""
        return False

    def replaces(self, earlier: Request) -> bool:
        """Whether both divide the CPU."""
        return isinstance(earlier, Cpus)

    def among(self, is_there: Callable[[GpuRef], bool]) -> Request | None:
        """Return itself, which needs no GPU."""
        del is_there
        return self


class Reset(_Request):
    """Whatever was asked before is dropped."""

    __slots__ = ()

    @property
    def names_gpus(self) -> bool:
        """Not one."""
        return False

    def replaces(self, earlier: Request) -> bool:
        """Whatever it is."""
        del earlier
        return True

    def among(self, is_there: Callable[[GpuRef], bool]) -> Request | None:
        """Return itself, which needs no GPU."""
        del is_there
        return self


Request: TypeAlias = Memory | Choice | Cpus | Reset


def unknown(request: NoReturn) -> NoReturn:
    """Stand where each nature has been told apart: a nature that was forgotten there is a type checker's error."""
    raise AssertionError(f"{request!r} is of no known nature")
