"""A policy of the tests: `half`, a limit of half of what is free. It is all here, and in no other file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tfgpu_magic.policy import arguments
from tfgpu_magic.policy.memory import Figures, whole
from tfgpu_magic.policy.policy import GpuRef, Memory
from tfgpu_magic.policy.word import Flag, Word

WORD = Word("half", ("half", "half --gpu 0"), "half of what is free", (Flag("--gpu", "N"), Flag("--grow")))


@dataclass(frozen=True, slots=True)
class Half(Memory):
    of_free: ClassVar[bool] = True
    need: ClassVar[None] = None

    gpu: GpuRef | None = None
    grow: bool = False

    def __str__(self) -> str:
        return f"half{'' if self.gpu is None else f' --gpu {self.gpu}'}{' --grow' * self.grow}"

    @property
    def grows(self) -> bool:
        return self.grow

    def sizes(self, gpu: Figures) -> tuple[int, ...]:
        return (whole(gpu.spare // 2),)

    def growing(self, *, on: bool) -> Half:
        return replace(self, grow=on)

    def on_gpu(self, gpu: GpuRef | None) -> Half:
        return replace(self, gpu=gpu)

    def less(self, size: int) -> None:
        pass

    def settled(self, limits: tuple[int, ...], gpu: GpuRef | None) -> Half:
        del limits
        return self.on_gpu(gpu)


def read(values: Sequence[str], flags: Mapping[str, str]) -> Sequence[Half]:
    return [Half(gpu, grow="--grow" in flags) for gpu in arguments.flagged(flags)]


def offers(said: Sequence[str], gpus: Callable[[], Sequence[str]]) -> list[str]:
    return []
