"""Answers about this session, as views: its timeline, and from its peaks how much to ask for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfgpu_magic.frameworks import registry
from tfgpu_magic.insight.answers.measurement import pool_name
from tfgpu_magic.insight.answers.track import Session
from tfgpu_magic.insight.fit import Fit, Need, fit
from tfgpu_magic.insight.timeline import TIMELINE
from tfgpu_magic.insight.why import explaining
from tfgpu_magic.insight.why.explanation import Explanation
from tfgpu_magic.model import phrases
from tfgpu_magic.model.answer import Document, grid, headline
from tfgpu_magic.monitor.driver.look import LOOK_TIMEOUT, look
from tfgpu_magic.units import rounded

_HEADS = ("<GPU", "<In use by", ">Highest peak", ">With a margin")
_NOTHING = (
    "No framework has used a GPU in this session, so there are no peaks to go by. Run the cells that count, and say it "
    "again."
)
_LEAD = "To be said before the first use, in a new notebook or with `--restart`:"
_NOT_AT_ONCE = "the frameworks had their peaks at different times, and may not have them at once."
_GROWS = "It is taken at once; with `--grow` it is a cap, and is taken as it is needed."


def timeline() -> Session:
    """Return what this session had in use of each GPU over time, and what each tracked cell did.

    A notebook that has loaded the extension is sampled about once a second while something may change, and so is a
    program that `tfgpu run` runs. What each cell did is known of those that `%tf_gpu track on` tracks.

    Returns:
        The session, which a notebook shows as a chart. Its `record` has ``samples()`` (seconds since the epoch, and
        bytes) and ``cells()``; ``frame()`` is a pandas DataFrame by cell.

    Examples:
        ``timeline().frame()["peak"].max()`` is the highest peak of any tracked cell, in bytes.
    """
    snapshot = look()
    return Session(TIMELINE, {gpu.uuid: gpu.label for gpu in snapshot.gpus if gpu.uuid}, simulated=snapshot.simulated)


def fitting() -> Document:
    """Return how much to ask for; the driver is asked for the GPUs' numbers and sizes."""
    snapshot = look(LOOK_TIMEOUT)
    failed = explaining.last().explanation
    found = fit(registry.session_peaks(), snapshot, failed)
    return how_much(found, failed, trouble=snapshot.error or "", simulated=snapshot.simulated)


def how_much(found: Fit, failed: Explanation | None = None, *, trouble: str = "", simulated: bool = False) -> Document:
    """Return how much to ask for.

    Args:
        found: the figures, and the words.
        failed: what ran out last.
        trouble: why the driver has not said which GPUs there are, in words; empty where it has.
        simulated: whether the GPUs are those of a simulated machine.
    """
    if not found.words:
        unknown = f"How much to ask for is not known: {phrases.plain(trouble, longest=400)}"
        return Document(unknown if trouble else _NOTHING)
    rows = [
        (need.gpu, pool_name(need.framework, name), rounded(peak), rounded(limit))
        for need in found.needs
        for name, peak, limit in zip(need.pools, need.peaks, need.limits, strict=True)
    ]
    ran_out = [] if failed is None or failed.call or failed.pool is None else [_of_failed(failed)]
    remarks = [*_beside(found.needs), *ran_out, _GROWS, *[phrases.SIMULATED] * simulated]
    return Document(headline(_LEAD, f"%{found.magic} {found.words}"), grid(_HEADS, rows), *remarks)


def _beside(needs: Sequence[Need]) -> Iterator[str]:
    """Say what each GPU is to have for all frameworks together."""
    for gpu, (context, total) in {need.gpu: (need.context, need.total) for need in needs}.items():
        whole = context + sum(sum(need.limits) for need in needs if need.gpu == gpu)
        if total is not None and whole > total:
            yield f"All limits come to {rounded(whole)}, and GPU {gpu} has {rounded(total)}: {_NOT_AT_ONCE}"
        else:
            context_too = f"CUDA's context takes about {rounded(context)} beside that."
            yield f"GPU {gpu} is to have {rounded(whole)} free: {context_too}"


def _of_failed(failed: Explanation) -> str:
    cell = "A cell" if failed.cell is None else f"In [{failed.cell}]"
    if failed.shortage.size is None:
        return f"{cell} ran out of memory: how much it would have taken is not known."
    return f"{cell} asked for {rounded(failed.shortage.size)} and did not get them: they are in it."
