"""Decides how much to ask for, from the peaks of a session: a margin, CUDA's context, and the words. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from tfgpu_magic.frameworks import registry
from tfgpu_magic.frameworks.runtime import RUNTIME
from tfgpu_magic.ground import TENSORFLOW, phrases
from tfgpu_magic.ground.answer import Answer, Part, grid, headline
from tfgpu_magic.ground.message import Message, msg
from tfgpu_magic.ground.units import MIB, exact, rounded
from tfgpu_magic.insight.measurement import pool_name
from tfgpu_magic.insight.objects.search import extents
from tfgpu_magic.insight.why import explaining
from tfgpu_magic.machine.see import DRIVER_TIMEOUT, look
from tfgpu_magic.policy.memory import context_bytes, round_up
from tfgpu_magic.policy.requests.pick import Pick

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfgpu_magic.frameworks.pool import Pool
    from tfgpu_magic.ground.snapshot import Gpu, Snapshot
    from tfgpu_magic.insight.objects.accounts import Device
    from tfgpu_magic.insight.why.explanation import Explanation
    from tfgpu_magic.policy.word import Magic

MARGIN = 8
"""The part of a peak, one eighth, that is added: memory is in pieces, and the next run's are not the same."""

LITTLE = 512 * MIB
"""Bytes that are added if they are more than that part, and no more than half the peak: single arrays may be a large
part of a small peak."""

LEAST_MARGIN = 32 * MIB
"""Bytes that are added at least: cuBLAS alone may want a workspace of so many."""


_HEADS = ("<GPU", "<In use by", ">Highest peak", ">With a margin")
_NOTHING = msg(
    "No framework has used a GPU in this session, so there are no peaks to go by. Run the cells that count, and say it "
    "again."
)
_LEAD = "To be said before the first use, in a new notebook or with `--restart`:"
_RUN_ONCE = msg("Run it once under this limit before you rely on it: an array needs its memory in one piece.")
_GROWS = msg("It is taken at once; with `--grow` it is a cap, and is taken as it is needed.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What the pools of one framework on one GPU need. Sizes are bytes.

    Attributes:
        framework: the framework's name for people.
        gpu: the `Gpu.label`.
        pools: the framework's names for its logical GPUs there.
        peaks: the highest of each, of that which its limit bounds.
        limits: what to ask for each.
        context: what CUDA's context takes beside them, about.
        total: the GPU's memory, or what can be had of it here; None if that is unknown.
    """

    framework: str
    gpu: str
    pools: tuple[str, ...]
    peaks: tuple[int, ...]
    limits: tuple[int, ...]
    context: int
    total: int | None


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Recommendation(Answer):
    """How much to ask for.

    Attributes:
        needs: what each framework needs of each GPU that it has used.
        magic: the magic of the line.
        policy: the policy of the line; empty if no GPU was used.
        failed: what ran out last.
        trouble: why the driver has not said which GPUs there are, in words; empty if it has.
        simulated: whether the GPUs are those of a simulated machine.
    """

    needs: tuple[Need, ...] = ()
    magic: Magic = "tf_gpu"
    policy: str = ""
    failed: Explanation | None = None
    trouble: str = ""
    simulated: bool = False

    def _parts(self) -> Iterator[Part | Message | str]:
        if not self.policy:
            unknown = msg(
                "How much to ask for is not known: {trouble}", trouble=phrases.clean(self.trouble, longest=400)
            )
            yield unknown if self.trouble else _NOTHING
            return
        yield headline(_LEAD, f"%{self.magic} {self.policy}")
        rows = [
            (need.gpu, pool_name(need.framework, name), rounded(peak), rounded(limit))
            for need in self.needs
            for name, peak, limit in zip(need.pools, need.peaks, need.limits, strict=True)
        ]
        yield grid(_HEADS, rows)
        yield from _room_of_gpus(self.needs)
        if self.failed is not None and self.failed.pool is not None and not self.failed.call:
            yield _failed_cell(self.failed)
        yield _GROWS
        yield _RUN_ONCE
        if self.simulated:
            yield phrases.SIMULATED


def recommend(
    peaks: Mapping[str, Sequence[Pool]],
    snapshot: Snapshot,
    failed: Explanation | None = None,
    arrays: Mapping[Device, tuple[int, int]] = MappingProxyType({}),
    *,
    picks: bool = False,
) -> Recommendation:
    """Return how much to ask for.

    Args:
        peaks: the counters of each framework with the peaks of the session, by its name for people.
        snapshot: the machine's GPUs.
        failed: what ran out last, which no peak shows.
        arrays: of each pool the bytes of the largest array that is there now, and those over which all are spread.
        picks: whether the session's policy picks its GPUs, as the next one's then does.
    """
    peaks = {
        name: [one._replace(peak=_highest_need(one, failed)) for one in counters] for name, counters in peaks.items()
    }
    highest = max((one.peak for counters in peaks.values() for one in counters), default=0)
    least = min(highest, MIB) or 1  # what a runtime takes for itself is no use of a GPU
    needs = [
        _need(framework, gpu, [one for one in counters if one.gpu == gpu.uuid], arrays)
        for framework, counters in peaks.items()
        for gpu in snapshot.gpus
        if any(one.gpu == gpu.uuid and one.peak >= least for one in counters)
    ]
    magic: Magic = "tf_gpu" if all(need.framework == TENSORFLOW for need in needs) else "gpu"
    others = {gpu.label for gpu in snapshot.gpus if not gpu.mig} - {need.gpu for need in needs}
    return Recommendation(
        needs=tuple(needs),
        magic=magic,
        policy=_policy(needs, magic, hides=bool(others), picks=picks),
        failed=failed,
        trouble=snapshot.error or "",
        simulated=snapshot.simulated,
    )


def _highest_need(pool: Pool, failed: Explanation | None) -> int:
    """Return the most that a pool had, or would have had if it had got what was asked for."""
    refused = 0
    if failed is not None and failed.pool is not None and not failed.call:
        here = (failed.pool.framework, failed.pool.name) == (pool.framework, pool.name)
        refused = failed.pool.level + (failed.shortage.size or 0) if here else 0
    return max(pool.peak, pool.most or 0, refused)


def _margin(peak: int, largest: int, extent: int) -> int:
    """Return what to add to a peak, by the arrays that are there.

    All others may lie in the way of the largest, in pieces; and in the pool of a limit they lie no farther apart than
    they had to.
    """
    # In a pool that grows they may lie anywhere; what lay before the first one may be gone.
    apart = extent + extent // MARGIN - peak if extent < 2 * peak else 0
    return max(peak // MARGIN, LEAST_MARGIN, min(peak // 2, LITTLE), min(largest, peak - largest), apart)


def _need(framework: str, gpu: Gpu, counters: Sequence[Pool], arrays: Mapping[Device, tuple[int, int]]) -> Need:
    context = context_bytes(gpu.total or 0)
    limits = [round_up(one.peak + _margin(one.peak, *arrays.get((framework, one.name), (0, 0)))) for one in counters]
    if gpu.capacity is not None and sum(limits) > (room := gpu.capacity - context):
        limits = [room * limit // sum(limits) // MIB * MIB for limit in limits]  # they did fit as they were
    return Need(
        framework=framework,
        gpu=gpu.label,
        pools=tuple(one.name for one in counters),
        peaks=tuple(one.peak for one in counters),
        limits=tuple(limits),
        context=context,
        total=gpu.capacity,
    )


def _policy(needs: Sequence[Need], magic: Magic, *, hides: bool, picks: bool) -> str:
    """Return the policy that limits each GPU to what is needed of it, and hides those of which nothing is."""
    gpus = list(dict.fromkeys(need.gpu for need in needs))
    if not gpus:
        return ""
    here = {gpu: [need for need in needs if need.gpu == gpu] for gpu in gpus}
    chosen = [f"visible {','.join(gpus)}"] if hides else []
    if magic == "tf_gpu" and any(len(need.limits) > 1 for need in needs):
        parts = [f"split {' '.join(map(exact, need.limits))} --gpu {need.gpu}" for need in needs]
        return "; ".join([*chosen, *parts])
    # Each framework may take the whole limit; of several logical GPUs the other frameworks know nothing.
    most = {gpu: max(sum(need.limits) for need in found) for gpu, found in here.items()}
    if len(set(most.values())) == 1:
        chosen = [str(Pick(len(gpus)))] if picks else chosen
        return "; ".join([*chosen, f"limit {exact(next(iter(most.values())))}"])
    return "; ".join([*chosen, f"limit {' '.join(f'{gpu}={exact(limit)}' for gpu, limit in most.items())}"])


def recommendation() -> Recommendation:
    """Return how much to ask for, with the GPUs' numbers and sizes by the driver's account."""
    failed, picks = explaining.explain_last().explanation, isinstance(RUNTIME.current.asked.choice, Pick)
    return recommend(registry.session_peaks(), look(DRIVER_TIMEOUT), failed, extents(), picks=picks)


def _room_of_gpus(needs: Sequence[Need]) -> Iterator[Message]:
    """Yield what each GPU is to have for all frameworks together."""
    for gpu, (context, total) in {need.gpu: (need.context, need.total) for need in needs}.items():
        whole = context + sum(sum(need.limits) for need in needs if need.gpu == gpu)
        text = "GPU {gpu} is to have {whole} free: CUDA's context takes about {context} beside that."
        if total is not None and whole > total:
            text = (
                "All limits come to {whole}, and GPU {gpu} has {total}: the frameworks had their peaks at different "
                "times, and may not have them at once."
            )
        yield msg(text, gpu=gpu, whole=rounded(whole), total=rounded(total), context=rounded(context))


def _failed_cell(failed: Explanation) -> Message:
    cell, size = "A cell" if failed.cell is None else f"In [{failed.cell}]", failed.shortage.size
    unknown = "{cell} ran out of memory: how much it would have taken is not known."
    known = "{cell} asked for {size} and did not get them: they are in it."
    return msg(unknown if size is None else known, cell=cell, size=rounded(size))
