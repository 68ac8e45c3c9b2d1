"""The driver's limits of GPU memory by cgroup: NVML's two calls for them, from driver 615 on; root may set them."""

from __future__ import annotations

import contextlib
import os
from typing import Any, NamedTuple

try:
    import pynvml
except ImportError:  # only this room needs it, and only where there are limits
    pynvml = None

from tfgpu_magic.root.file import UNLIMITED


class Failed(Exception):
    """What was asked cannot be had; the text says why."""


class TooOld(Exception):
    """The driver is older than limits."""


class Card(NamedTuple):
    """A GPU: number, UUID, bytes (None: unknown, within a limit), why it takes no limit or empty, NVML's handle."""

    number: int
    uuid: str
    total: int | None
    why: str
    handle: Any


class Limiter:
    """The driver; raises `Failed` if there is none, or it has no limits. ``own`` is this process's cgroup."""

    def __init__(self, own: str) -> None:
        if not hasattr(pynvml, "nvmlDeviceSetMemoryLimits_v1"):
            raise Failed("it takes nvidia-ml-py 13.615 or later, which the extra `limits` brings")
        self._own, self.cards = own, list[Card]()
        self.find_cards()

    def find_cards(self) -> None:
        """List the GPUs: one that was lost may be back, and NVML may know it only when it starts again."""
        lost = any(card.handle is None for card in self.cards)
        try:
            if lost:
                pynvml.nvmlShutdown()
            if lost or not self.cards:
                pynvml.nvmlInit()
            self.version: str = pynvml.nvmlSystemGetDriverVersion()
            self.cards = [self._card(number, self._own) for number in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError as error:
            raise Failed(f"the driver does not answer: {error}") from error

    def _card(self, number: int, own: str) -> Card:
        why, limit = "", UNLIMITED
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(number)
            uuid, total = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetMemoryInfo(handle).total
        except pynvml.NVMLError as error:  # such as a GPU that is lost: the others keep their limits
            return Card(number, str(number), 0, f"it does not answer: {error}", None)
        with contextlib.suppress(pynvml.NVMLError):  # it has no MIG
            why = "it is in MIG mode" if pynvml.nvmlDeviceGetMigMode(handle)[0] else ""
        card = Card(number, uuid, total, why, handle)
        with contextlib.suppress(Failed):  # it was never used
            limit = self.get(card, own)[1]
        return card if limit == UNLIMITED else card._replace(total=None)  # what NVML calls the total is the limit

    def set(self, card: Card, path: str, soft: int, hard: int) -> None:
        """Limit what all processes of a cgroup may hold of a GPU together, in bytes; or raise `Failed`."""
        limits = pynvml.c_nvmlSetMemoryLimits_v1_t(os.fsencode(path), soft, hard)
        _call(pynvml.nvmlDeviceSetMemoryLimits_v1, card, limits)

    def get(self, card: Card, path: str) -> tuple[int, int, int]:
        """Return a cgroup's soft and hard limit on a GPU and what it holds there, in bytes; or raise `Failed`."""
        limits = pynvml.c_nvmlGetMemoryLimits_v1_t(os.fsencode(path))
        _call(pynvml.nvmlDeviceGetMemoryLimits_v1, card, limits)
        return limits.softLimit, limits.hardLimit, limits.currentUsed


def _call(function: Any, card: Card, limits: Any) -> None:
    if card.handle is None:
        raise Failed(card.why)
    try:
        function(card.handle, limits)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise TooOld("the driver is older than 615, the first that has limits") from error
        virgin = "the driver does not support it here, or not before the cgroup is used"
        raise Failed(virgin if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED else str(error)) from error
