"""`visible`: the request on which GPUs TensorFlow sees, by name. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tfgpu_magic.errors import PolicyError
from tfgpu_magic.ground.message import Line, msg
from tfgpu_magic.policy import arguments
from tfgpu_magic.policy.policy import Choice, GpuRef
from tfgpu_magic.policy.word import Word

WORD = Word(
    "visible",
    ("visible 0,1", "visible 3,2", "visible GPU-<uuid>", "visible none", "visible all"),
    "set which GPUs TensorFlow sees, and in which order",
    tried=("none", "all", "cpu", "use", "select"),
    instead=msg("Which GPUs TensorFlow sees is `{line}`, `visible all`, `visible 0,1`.", line=Line("visible none")),
)


@dataclass(frozen=True, slots=True)
class Visible(Choice):
    """Which GPUs TensorFlow sees, and in which order; None is all of them."""

    gpus: tuple[GpuRef, ...] | None

    def __str__(self) -> str:
        if self.gpus is None:
            return "visible all"
        return f"visible {','.join(map(str, self.gpus)) or 'none'}"

    @property
    def everything(self) -> bool:
        """Whether it is `visible all`."""
        return self.gpus is None

    @property
    def refs(self) -> Sequence[GpuRef]:
        """The GPUs that it names."""
        return self.gpus or ()

    @property
    def names_gpus(self) -> bool:
        """Whether it names any."""
        return bool(self.gpus)

    def easier(self, gpus: Sequence[GpuRef]) -> Iterator[Visible]:
        """Yield the choice of these GPUs."""
        yield Visible(tuple(gpus))

    def among(self, is_there: Callable[[GpuRef], bool]) -> Visible | None:
        """Return the choice of those GPUs that are there; None where none is."""
        if not self.gpus:
            return self
        there = tuple(filter(is_there, self.gpus))
        return Visible(there) if there else None


def read(values: Sequence[str], flags: Mapping[str, str]) -> Sequence[Visible]:
    """Parse what follows the word."""
    del flags
    refs = arguments.listed(values)
    if not refs:
        raise WORD.error("Which GPUs?")
    if len(refs) == 1 and refs[0].lower() in ("all", "none"):
        return [Visible(None if refs[0].lower() == "all" else ())]
    if refs == ["-1"]:
        raise PolicyError(msg("'-1' is not a GPU. For none, write `{line}`.", line=Line("visible none")))
    gpus = tuple(map(arguments.gpu, refs))
    if len(set(gpus)) < len(gpus):
        raise PolicyError(f"A GPU is named twice in {' '.join(values)!r}; CUDA would then show none.")
    return [Visible(gpus)]


def offers(typed: Sequence[str], gpus: Callable[[], Sequence[str]]) -> list[str]:
    """Return the values that may follow those that are typed already."""
    values = arguments.values(typed)
    if not values:
        return ["all", "none", *gpus()]
    return [] if values[0] in ("all", "none") else list(gpus())
