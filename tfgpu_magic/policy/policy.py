"""A policy: the requests for TensorFlow's GPUs, in order. `parser` makes it from text, `plan` acts on it. Pure.

The requests are in `requests`, a module a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tfgpu_magic.policy.request import Choice, Cpus, GpuRef, Memory, Request, Reset, unknown


@dataclass(frozen=True, slots=True)
class Policy:
    """The requests, in the order in which they were made. Its text is parsed as the same policy.

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

    def by_nature(self) -> tuple[tuple[Memory, ...], Choice | None, tuple[Cpus, ...]]:
        """Return the requests about memory, the last choice of GPUs that are seen, and the requests about the CPU.

        Code that makes one policy of another takes it apart with this, so that one more nature is an error of the type
        checker there, and nothing is dropped.
        """
        memory: list[Memory] = []
        choice: Choice | None = None
        cpus: list[Cpus] = []
        for request in self.requests:
            match request:
                case Memory():
                    memory.append(request)
                case Choice():
                    choice = request
                case Cpus():
                    cpus.append(request)
                case Reset():
                    pass  # it is about what was asked before
                case _:
                    unknown(request)
        return tuple(memory), choice, tuple(cpus)

    @property
    def memory(self) -> tuple[Memory, ...]:
        """The requests about the memory of GPUs."""
        return self.by_nature()[0]

    @property
    def divides(self) -> bool:
        """Whether it asks for a fair part of any GPU."""
        return any(request.divided for request in self.memory)

    @property
    def of_any_framework(self) -> bool:
        """Whether every framework can be asked it, and not only TensorFlow."""
        return all(request.of_any_framework for request in self.memory)

    @property
    def choice(self) -> Choice | None:
        """The choice of the GPUs that are seen; of several the last."""
        return self.by_nature()[1]

    def then(self, later: Policy) -> Policy:
        """Return the policy with later requests added, which replace the earlier ones about the same."""
        requests: list[Request] = list(self.requests)
        for request in later:
            requests = [earlier for earlier in requests if not request.replaces(earlier)]
            if not isinstance(request, Reset):
                requests.append(request)
        return Policy(tuple(requests))

    def asks_the_same(self, other: Policy) -> bool:
        """Tell whether both ask the same. Order counts where a GPU may be named in two ways, by number and by UUID."""
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
