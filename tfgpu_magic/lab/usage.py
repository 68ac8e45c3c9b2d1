"""What users hold of the GPUs and have held: from Prometheus, or from this machine alone.

Both give the exporter's samples. What is not known is missing or None, and a sentence of `Usage.flaws` says so.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from tornado.httpclient import AsyncHTTPClient

from tfgpu_magic.lab.culler import fetch
from tfgpu_magic.lab.exporter import Exporter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfgpu_magic.lab.counters import Hours, Pair, Total

MOST_BYTES = 8 << 20
"""The longest answer that is read: that of some 10,000 users."""
QUERY_TIMEOUT = 20.0
"""Seconds in which Prometheus answers to the last byte; a month of many users is much to read."""
MACHINE_TIMEOUT = 10.0
"""Seconds in which this machine's figures have to be read."""
SPANS = {"7 days": "7d", "30 days": "30d"}
"""The times of which Prometheus is asked, as it writes them."""
JOB = 'job="tfgpu"'
"""Selects what the exporter has told, as the pages and the rules call its job; a user's server may tell anything."""
_HOURS = {"held": "tfgpu_magic_held_byte_seconds_total", "unused": "tfgpu_magic_held_unused_byte_seconds_total"}

Sample = tuple["Mapping[str, str]", float]
"""Labels and a value, as Prometheus has them."""


class Hold(NamedTuple):
    """What a user's processes hold of a GPU.

    Attributes:
        host: what the machine is called.
        gpu: the GPU's label there.
        held: bytes; None where the driver does not tell.
        unused: what of that has been unused for a minute or longer; None where that is not known.
    """

    host: str
    gpu: str
    held: float | None
    unused: float | None


class Spent(NamedTuple):
    """What a user has held in a time.

    Attributes:
        held: byte-seconds.
        unused: those of them in which it was held without use.
    """

    held: float = 0.0
    unused: float = 0.0


class Usage(NamedTuple):
    """What is known of users, by their Unix names.

    Attributes:
        holds: what is held now; None where no machine tells that.
        spent: by time, what was held; None of a time of which nothing is known.
        flaws: why anything is not known, a sentence each.
        counted: since when hours are, where that is not told by their time, in a sentence.
    """

    holds: Mapping[str, Sequence[Hold]] | None
    spent: Mapping[str, Mapping[str, Spent] | None]
    flaws: Sequence[str] = ()
    counted: str = ""


class MachineUsage(Exporter):
    """This machine's figures, with the hours since it was started."""

    _counted: float | None = None

    async def read(self, _: str | None) -> Usage:
        """Return those of all users, which cost no more than those of one."""
        try:
            samples, counted = await asyncio.wait_for(asyncio.to_thread(self._samples), MACHINE_TIMEOUT)
        except asyncio.TimeoutError:
            return Usage(None, {}, ["This machine's figures cannot be read now."])
        holds, flaws = _now(samples)
        if holds is None:
            return Usage(None, {}, flaws)
        if counted is None:
            who = "Root can read it, and who is in the group of the service `tfgpu collect`."
            return Usage(holds, {}, [*flaws, f"For how long memory was held is not known to this page. {who}"])
        since = time.strftime("%-d %B, %H:%M", time.localtime(counted))
        anew = f"Hours are those of this machine since {since}, and begin anew when it is started."
        return Usage(holds, {f"since {since}": _spent(samples)}, flaws, anew)

    def _samples(self) -> tuple[list[Sample], float | None]:
        """Return the exporter's samples, and since when hours are counted; None where they cannot be read."""
        self._counted = None
        found = [one for family in self.collect() for one in family.samples]
        return [({**one.labels, "__name__": one.name}, one.value) for one in found], self._counted

    def _from_zero(self, hours: Hours | None, _: float) -> Mapping[Pair, Total]:
        """Return the totals as they are: Prometheus alone needs the zero that a counter begins with."""
        self._counted = hours.since if hours else None
        return hours.totals if hours else {}


class Prometheus:
    """The figures of all machines that a Prometheus scrapes.

    Args:
        url: where it is, without ``/api``.
    """

    def __init__(self, url: str) -> None:
        self._url = f"{url.rstrip('/')}/api/v1/query"
        self._client = AsyncHTTPClient(force_instance=True, max_body_size=MOST_BYTES, max_clients=32)

    async def read(self, user: str | None) -> Usage:
        """Return those of a user; None is all users."""
        whose = f"{JOB}, username" + ('!=""' if user is None else f"={_quoted(user)}")
        told = await asyncio.gather(
            self._ask(f'{{__name__=~"tfgpu_magic_(held_bytes|held_unused_bytes|unknown_processes)", {whose}}}'),
            self._ask(f'{{__name__=~"tfgpu_magic_(up|gpu_error)", {JOB}}}'),
            self._ask(f"last_over_time(tfgpu_magic_up{{{JOB}}}[7d])"),  # who is not up any more is away
            *(
                self._ask(" or ".join(_increase(name, f"{{{whose}}}[{span}]") for name in _HOURS.values()))
                for span in SPANS.values()
            ),
        )
        (held, flawed, lately, *hours) = (_possible(samples) for samples in told)
        spent = {name: None if grown is None else _spent(grown) for name, grown in zip(SPANS, hours, strict=True)}
        if held is None or flawed is None or lately is None:
            return Usage(None, spent, ["Prometheus does not answer as it should."])
        away = [({**labels, "__name__": "tfgpu_magic_up"}, 0.0) for labels, _ in lately]
        holds, flaws = _now([*away, *flawed, *held])
        flaws += [f"Prometheus does not tell the hours of {name}." for name, grown in spent.items() if grown is None]
        if any(len(samples or ()) > len(_possible(samples) or ()) for samples in told):
            flaws.append("Prometheus has figures that cannot be: they are left out.")
        return Usage(holds, spent, flaws)

    async def _ask(self, query: str) -> list[Sample] | None:
        """Return what an expression is now; None where that is not answered, or not as it should be."""
        try:
            answer = await fetch(self._client, f"{self._url}?{urlencode({'query': query})}", QUERY_TIMEOUT)
            found = [(one["metric"], one["value"][1]) for one in json.loads(answer.body)["data"]["result"]]
            return [({str(name): str(label) for name, label in one.items()}, float(text)) for one, text in found]
        except Exception as error:  # whatever is wrong with it, nothing is known
            logging.getLogger(__name__).warning("tfgpu_magic: Prometheus, asked for %s: %r", query, error)
            return None


def _quoted(text: str) -> str:
    """Return a text as PromQL writes it, which has the escapes of Go, and so those of JSON."""
    return json.dumps(text, ensure_ascii=False)


def _increase(metric: str, selected: str) -> str:
    """Return the expression for each user's byte-seconds, with the metric's name, which sums otherwise lose."""
    return f'label_replace(sum by (username) (increase({metric}{selected})), "metric", "{metric}", "", "")'


def _possible(samples: list[Sample] | None) -> list[Sample] | None:
    """Return the samples whose values can be."""
    return None if samples is None else [one for one in samples if 0 <= one[1] < math.inf]


def _now(samples: Sequence[Sample]) -> tuple[Mapping[str, Sequence[Hold]] | None, list[str]]:
    """Return what is held now by user, and what is not known of it; of equal samples the last one counts."""
    found: defaultdict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    for labels, value in samples:
        where = tuple(labels.get(name, "") for name in ("hostname", "gpu", "username", "uuid"))
        found[labels.get("__name__", "").removeprefix("tfgpu_magic_")][where] = value
    up = {host: value for (host, *_), value in found["up"].items()}
    flaws = [f"{host} does not tell its figures now." for host, value in sorted(up.items()) if not value]
    flaws += [f"GPU {gpu} of {host} cannot be read." for (host, gpu, *_), value in found["gpu_error"].items() if value]
    if not any(up.values()):
        return None, flaws or ["No machine tells its figures."]
    unknown = {where for where, count in found["unknown_processes"].items() if count}
    holds: defaultdict[str, list[Hold]] = defaultdict(list)
    for where in sorted({where for where, held in found["held_bytes"].items() if held} | unknown):
        host, gpu, user, _ = where
        held = None if where in unknown else found["held_bytes"][where]
        holds[user].append(Hold(host, gpu, held, found["held_unused_bytes"].get(where)))
    return holds, flaws


def _spent(samples: Sequence[Sample]) -> Mapping[str, Spent]:
    """Return what each user has held."""
    sums: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for labels, value in samples:
        sums[labels.get("username", "")][labels.get("metric") or labels.get("__name__", "")] += value
    totals = {user: Spent(*(by[name] for name in _HOURS.values())) for user, by in sums.items()}
    return {user: spent for user, spent in totals.items() if spent.held}
