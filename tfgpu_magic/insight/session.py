"""This session as a chart with a table by cell, and the line below a cell that changed memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tfgpu_magic.ground import phrases
from tfgpu_magic.ground.answer import Answer, Part, Quiet, grid
from tfgpu_magic.ground.message import Line, Message, msg
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.insight import chart
from tfgpu_magic.insight.chart import Curve, cell_name, cell_title
from tfgpu_magic.insight.measurement import elapsed, peak_text, pool_name, signed_size
from tfgpu_magic.insight.timeline import TIMELINE
from tfgpu_magic.machine.see import look

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tfgpu_magic.insight.measurement import Measurement, PoolUse
    from tfgpu_magic.insight.timeline import Timeline

_HEADS = ("<Cell", "<Code", ">Time", "<Pool", ">In use", ">Change", ">Peak", "<Error")
_LONGEST = 50  # characters of a cell's line
_MOST = 200  # rows of the table

NOTHING = msg("No framework has used a GPU in this session since tfgpu_magic was loaded.")
OFF = msg("Cells are not tracked. `{line}` notes what each of them does.", line=Line("track on"))
NONE_CHANGED = msg("No tracked cell has changed what is in use.")
_LAST = msg("These are the last {most} of {all} rows; `tfgpu_magic.timeline().frame()` has all.")


def cell_line(pools: Iterable[PoolUse]) -> Quiet:
    """Return the line below a cell that has changed memory in some pools."""
    return Quiet("; ".join(map(_pool_text, pools)))


@dataclass(frozen=True, slots=True, repr=False)
class Session(Answer):
    """What a session had in use of each GPU, and what each cell did.

    Attributes:
        record: the data: `Timeline.samples` and `cells`.
        names: the numbers of the GPUs, by UUID, if they are known.
        tracked: whether cells are tracked now; None if nothing is to be said of that.
        simulated: whether the GPUs are those of a simulated machine.
    """

    record: Timeline
    names: Mapping[str, str] = field(default_factory=dict)
    tracked: bool | None = None
    simulated: bool = False

    def frame(self) -> Any:
        """Return a pandas DataFrame with a row for each tracked cell and pool. Sizes are bytes.

        Raises:
            ImportError: pandas is not installed.
        """
        import pandas as pd  # optional

        rows = [
            pool._asdict()
            | {"cell": cell.cell, "code": cell.what, "began": pd.Timestamp(cell.began, unit="s", tz="UTC")}
            | {"seconds": cell.seconds, "pool": pool.name, "delta": pool.delta, "error": cell.error}
            for cell in self.record.cells()
            for pool in cell.pools
        ]
        return pd.DataFrame(rows, columns=_COLUMNS)

    def _parts(self) -> Iterable[Part | Message | str]:
        curves, rows = self._curves(), self._rows()
        return [_charts(curves) if curves else NOTHING, grid(_HEADS, rows[-_MOST:], "By cell"), *self._remarks(rows)]

    def _curves(self) -> list[Curve]:
        points: dict[str, list[tuple[float, int]]] = {}
        limits: dict[str, int | None] = {}
        for sample in self.record.samples():
            for level in sample.levels:
                points.setdefault(level.gpu, []).append((sample.time, level.in_use))
                limits[level.gpu] = level.limit
        cells = self.record.cells()
        return [
            Curve(self._name(gpu), tuple(found), limits[gpu], tuple(on))
            for gpu, found in sorted(points.items(), key=lambda item: self._name(item[0]))
            if (on := _cells_on(gpu, cells)) or any(in_use for _, in_use in found)
        ]

    def _name(self, gpu: str) -> str:
        return f"GPU {self.names.get(gpu, phrases.clean(gpu, longest=12))}"

    def _rows(self) -> list[tuple[str, ...]]:
        """Return a row for each pool that a cell changed."""
        return [
            (
                cell_name(cell),
                cell_title(cell, _LONGEST),
                elapsed(cell.seconds),
                pool_name(pool.framework, pool.name),
                rounded(pool.after),
                signed_size(pool.delta),
                peak_text(pool),
                phrases.clean(cell.error),
            )
            for cell in self.record.cells()
            for pool in cell.pools
            if _has_changed(pool)
        ]

    def _remarks(self, rows: list[tuple[str, ...]]) -> Iterator[Message | str]:
        if self.tracked and not rows:
            yield NONE_CHANGED
        if len(rows) > _MOST:
            yield _LAST(most=_MOST, all=len(rows))
        if self.tracked is False:
            yield OFF
        if self.simulated:
            yield phrases.SIMULATED


_COLUMNS = (
    *("cell", "code", "began", "seconds", "framework", "pool", "gpu"),
    *("before", "after", "delta", "peak", "exact", "error"),
)


def _charts(curves: list[Curve]) -> Part:
    lines = [line for curve in curves for line in (curve.caption, f"  {chart.line(curve)}")]
    return Part(lines, chart.STYLE + "".join(map(chart.draw, curves)) + chart.legend(curves))


def _pool_text(pool: PoolUse) -> str:
    changed = f"{signed_size(pool.delta)}, " if pool.delta else ""
    return f"{pool_name(pool.framework, pool.name)}: {changed}{rounded(pool.after)} in use, peak {peak_text(pool)}"


def _has_changed(pool: PoolUse) -> bool:
    return bool(pool.delta) or (pool.exact and pool.peak > pool.before)


def _cells_on(gpu: str, cells: tuple[Measurement, ...]) -> list[Measurement]:
    """Return the cells that changed what is in use of a GPU, each with its pools there alone."""
    there = (replace(one, pools=tuple(pool for pool in one.pools if pool.gpu == gpu)) for one in cells)
    return [one for one in there if any(map(_has_changed, one.pools))]


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
