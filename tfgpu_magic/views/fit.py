"""The result of `measure --fit`: how much to ask for, and the line to paste, as text and as HTML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfgpu_magic.insight.fit import together
from tfgpu_magic.units import rounded
from tfgpu_magic.views import html, phrases, text
from tfgpu_magic.views.measurement import pool_name

if TYPE_CHECKING:
    from tfgpu_magic.insight.fit import Fit, Need

_HEADS = ("<GPU", "<In use by", ">Highest peak", ">With a margin")
_NOTHING = (
    "No framework has used a GPU in this session, so there are no peaks to go by. Run the cells that count, and say it "
    "again."
)


@dataclass(frozen=True, slots=True, repr=False)
class FitAnswer:
    """How much to ask for; IPython shows it as HTML or as text.

    Attributes:
        fit: the figures, and the words.
        trouble: why the driver has not said which GPUs there are, in words; empty where it has.
        simulated: whether the GPUs are those of a simulated machine.
    """

    fit: Fit
    trouble: str = ""
    simulated: bool = False

    def __repr__(self) -> str:
        if not self.fit.words:
            return self._nothing
        return "\n".join([_LEAD, f"  {self._line}", *text.columns(_HEADS, self._rows()), *self._remarks()])

    def _repr_html_(self) -> str:
        if not self.fit.words:
            return html.page(f"<p>{html.prose(self._nothing)}</p>")
        table = html.grid("", _HEADS, ["".join(map(html.cell, _HEADS, row)) for row in self._rows()])
        lead = f"<p><strong>{html.prose(_LEAD)}</strong><br>{html.prose(f'`{self._line}`')}</p>"
        return html.page(lead + table + "".join(map(html.remark, self._remarks())))

    @property
    def _nothing(self) -> str:
        if not self.trouble:
            return _NOTHING
        return f"How much to ask for is not known: {phrases.plain(self.trouble, longest=400)}"

    @property
    def _line(self) -> str:
        return f"%{self.fit.magic} {self.fit.words}"

    def _rows(self) -> list[tuple[str, ...]]:
        return [row for need in self.fit.needs for row in _rows(need)]

    def _remarks(self) -> list[str]:
        lines = [
            f"GPU {gpu} is to have {rounded(whole)} free: CUDA's context takes about {rounded(context)} beside that."
            for gpu, (whole, context) in together(self.fit.needs).items()
        ]
        return [*lines, _GROWS, phrases.SIMULATED] if self.simulated else [*lines, _GROWS]


_LEAD = "To be said before the first use, in a new notebook or with `--restart`:"
_GROWS = "It is taken at once; with `--grow` it is a cap, and is taken as it is needed."


def _rows(need: Need) -> list[tuple[str, ...]]:
    pools = zip(need.pools, need.peaks, need.limits, strict=True)
    return [(need.gpu, pool_name(need.framework, name), rounded(peak), rounded(limit)) for name, peak, limit in pools]
