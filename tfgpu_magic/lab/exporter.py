"""What Prometheus is told of a machine: its GPUs, and what each user holds and has held of them; see `METRICS`.

It reads what the service has written (`service`, `counters`), and on a machine without one, run by a person, that
person's own board. Users have their names as labels; no notebook and no command line is one. What is not known is left
out, or stands still, and never falls to zero.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import socket
import ssl
import threading
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from tfgpu_magic._version import __version__
from tfgpu_magic.errors import MonitorError, TfGpuError
from tfgpu_magic.ground.bounded import run_within
from tfgpu_magic.lab.counters import Total, UsageTotals, read_totals
from tfgpu_magic.machine.board.machine_board import SYSTEM_USERS, MachineDirectory
from tfgpu_magic.machine.board.snapshot_file import SnapshotReader
from tfgpu_magic.machine.board.unused import LONGEST_GAP
from tfgpu_magic.machine.driver.schedule import ASLEEP
from tfgpu_magic.machine.see import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence, Set
    from wsgiref.simple_server import WSGIServer

    from prometheus_client.core import Metric

    from tfgpu_magic.ground.snapshot import Gpu, Process, Snapshot
    from tfgpu_magic.lab.counters import Pair
    from tfgpu_magic.machine.board.snapshot_file import Reading

PORT = 9836
NAMES_TIMEOUT = 0.25
"""Seconds to wait for users' names: a directory of users may hang. Until a user has one, the user's samples wait."""
NEW_FOR = 75.0
"""Seconds for which a counter that has come up is 0: Prometheus adds what it grows by, not what it begins with."""
SILENT_FOR = 10.0
"""Seconds without a word from a client, after which its connection is closed."""
LINGER, READING_EVERY = 150.0, 5.0
"""Of the board of a person: seconds that its collector stays after a scrape, and seconds between two readings."""
UNKNOWN = "unknown"
"""The name for all whom the system has no name for: no container makes labels by the users in it."""

_FIRST_PASSED = 3  # SD_LISTEN_FDS_START
_MACHINE, _GPU = ("hostname",), ("uuid", "gpu", "hostname")
_USER, _POD = (*_GPU, "username"), (*_GPU, "pod_uid", "container_id")

SENSORS = {
    "utilisation": ("gpu_utilization_ratio", "Part of the time in which a GPU ran any kernel.", 100),
    "temperature": ("gpu_temperature_celsius", "Temperature of a GPU.", 1),
    "power": ("gpu_power_watts", "Power that a GPU draws.", 1),
}
"""The metric of each of `nvml.SENSORS`: its name, what it tells, and by what a figure is divided for it."""

METRICS: dict[str, tuple[str, tuple[str, ...]]] = {
    "up": ("Whether the machine's figures are there and fresh; if not, there are no others.", _MACHINE),
    "last_reading_timestamp_seconds": ("When the GPUs were last read; left out while they sleep.", _MACHINE),
    "info": ("Always 1: the versions of this package and of the driver.", (*_MACHINE, "version", "driver")),
    "limits_not_in_force": ("Limits of `tfgpu limits` that the driver does not enforce, and mistakes.", _MACHINE),
    "gpu_error": ("Whether a GPU's figures cannot be read.", _GPU),
    "gpu_memory_total_bytes": ("Memory of a GPU, or of a MIG instance.", _GPU),
    "gpu_memory_used_bytes": ("Memory that is in use by anyone.", _GPU),
    **{name: (text, _GPU) for name, text, _ in SENSORS.values()},
    "held_bytes": ("Memory that a user's processes hold of a GPU.", _USER),
    "held_unused_bytes": ("What of that was not used for a minute or longer.", _USER),
    "processes": ("Processes of a user on a GPU.", _USER),
    "unused_processes": ("Those of them that have not used it for a minute or longer.", _USER),
    "unknown_processes": ("Those of them of which the driver tells no bytes; `held_bytes` is left out then.", _USER),
    "limit_hard_bytes": ("The most that the driver lets all processes of a user's cgroup hold of a GPU.", _USER),
    "limit_soft_bytes": ("What it guarantees to them.", _USER),
    "held_byte_seconds_total": ("Bytes held, times the seconds for which they were, since the machine began.", _USER),
    "held_unused_byte_seconds_total": ("The same of what was held without use.", _USER),
    "pod_held_bytes": ("Memory that the processes of a container hold of a GPU; it is in `held_bytes`, too.", _POD),
}
"""Every metric, by its name without ``tfgpu_magic_``: what it tells, and its labels."""

Sample = tuple[str, tuple[str, ...], "float | None"]


class LimitFacts(NamedTuple):
    """What the service of `tfgpu limits` has written.

    Attributes:
        sizes: bytes, soft and hard, by the GPU's UUID and user; None where there is no such limit.
        broken: how many are not in force; None where that service is not there.
    """

    sizes: Mapping[tuple[str, int], tuple[int | None, int | None]] = {}
    broken: int | None = None


class MachineSeen(NamedTuple):
    """What is known of a machine at one time.

    Attributes:
        host: what the machine is called.
        board: the last reading; None where there is none that is fresh.
        hours: what was held for how long, by the GPU's UUID and user.
        names: the users' names; of one that is not in it nothing is told yet.
        limits: what the driver holds users to.
        left: what counted as that of `UNKNOWN` of users who are not called so any more.
    """

    host: str
    board: Snapshot | None
    hours: Mapping[Pair, Total] = {}
    names: Mapping[int, str] = {}
    limits: LimitFacts = LimitFacts()
    left: Mapping[Pair, Total] = {}

    def user_name(self, uid: int | None) -> str | None:
        """Return a user's name; None where it has to be waited for."""
        return UNKNOWN if uid is None else self.names.get(uid)


def make_metrics(seen: MachineSeen, now: float) -> list[Metric]:
    """Return the metrics.

    Args:
        seen: what is known.
        now: in seconds since the epoch; lists that are too old by then tell nothing of users.
    """
    made: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for name, (text, labels) in METRICS.items():
        kind = CounterMetricFamily if name.endswith("_seconds_total") else GaugeMetricFamily
        made[name] = kind(f"tfgpu_magic_{name}", text, labels=labels)
    for name, values, value in _samples(seen, now):
        if value is not None:
            made[name].add_metric(values, value)
    return [family for family in made.values() if family.samples]


def _samples(seen: MachineSeen, now: float) -> Iterator[Sample]:
    board, machine = seen.board, (seen.host,)
    yield "up", machine, board is not None
    if board is None:
        return
    yield "last_reading_timestamp_seconds", machine, None if board.error else board.time
    yield "info", (*machine, __version__, board.driver or ""), 1
    yield "limits_not_in_force", machine, seen.limits.broken
    rows: defaultdict[str, list[Process]] = defaultdict(list)
    for row in board.processes:
        rows[row.gpu].append(row)
    listed = board.listed_at is not None and abs(now - board.listed_at) <= LONGEST_GAP
    for gpu in board.gpus:
        where = (gpu.uuid or "", gpu.label, seen.host)
        yield from ((name, where, value) for name, value in _figures(gpu))
        if listed and not (gpu.mig or gpu.error) and gpu.listed:
            yield from _users(seen, gpu, rows[gpu.label], where)
    yield from _remembered_samples(seen, board)


def _figures(gpu: Gpu) -> Iterator[tuple[str, float | None]]:
    yield "gpu_error", gpu.error is not None
    yield "gpu_memory_total_bytes", None if gpu.mig else gpu.total  # that of its instances
    used = gpu.used
    if gpu.unified and gpu.total is not None and gpu.free is not None:
        used = gpu.total - gpu.free  # programs of the processor have some, too
    yield "gpu_memory_used_bytes", None if gpu.mig or gpu.error else used
    for sensor, (name, _, units) in SENSORS.items():
        value = gpu.sensors.get(sensor)
        yield name, None if value is None else value / units


def _users(seen: MachineSeen, gpu: Gpu, rows: Sequence[Process], where: tuple[str, ...]) -> Iterator[Sample]:
    """Yield what users hold of a GPU."""
    by_user: defaultdict[str, list[Process]] = defaultdict(list)
    pods: defaultdict[tuple[str, str], list[Process]] = defaultdict(list)
    folded = {row.uid for row in rows if row.pid <= 0}  # a row of the board's for many processes
    for row in rows:
        if (name := seen.user_name(row.uid)) is not None:
            by_user[name].append(row)
        kind, _, ids = (row.cgroup or "").partition(":")
        if kind in ("pod", "container"):
            pod, _, container = ids.rpartition("/")
            pods[pod, container].append(row)
    for name, theirs in by_user.items():
        user = (*where, name)
        computing = [row for row in theirs if row.kind != "G"]
        unused = [row for row in computing if row.unused is not None]
        told = all(row.utilisation is not None or row.unused is not None for row in computing)
        told = told or gpu.utilisation == 0 or len(rows) == 1  # as `unused.IdleTracker` finds it
        apart = folded.isdisjoint(row.uid for row in theirs)
        told = told and apart
        yield "held_bytes", user, _sum(theirs)
        yield "held_unused_bytes", user, _sum(unused) if told else None
        yield "processes", user, len(theirs) if apart else None
        yield "unused_processes", user, len(unused) if told else None
        yield "unknown_processes", user, sum(row.held is None for row in theirs) if apart else None
    for (pod, container), held in pods.items():
        apart = folded.isdisjoint(row.uid for row in held)
        yield "pod_held_bytes", (*where, pod, container), _sum(held) if apart else None


def _sum(rows: Sequence[Process]) -> int | None:
    """Add up what processes hold; None unless all of it is known."""
    known = [row.held for row in rows if row.held is not None]
    return sum(known) if len(known) == len(rows) else None


def _remembered_samples(seen: MachineSeen, board: Snapshot) -> Iterator[Sample]:
    """Yield the totals and limits of users, whether they use a GPU now or not."""
    gpus = {gpu.uuid or gpu.label: (gpu.uuid or "", gpu.label, seen.host) for gpu in board.gpus}

    def user(uuid: str, uid: int | None) -> tuple[str, ...] | None:
        name = seen.user_name(uid)
        return (*gpus[uuid], name) if uuid in gpus and name is not None else None

    # Those whom the system has no name for have one together.
    sums: defaultdict[tuple[str, tuple[str, ...]], float] = defaultdict(float)
    unnamed = (((uuid, None), total) for (uuid, _), total in seen.left.items())  # a counter never goes back
    for pair, total in (*seen.hours.items(), *unnamed):
        if (labels := user(*pair)) is not None:
            sums["held_byte_seconds_total", labels] += total.held
            sums["held_unused_byte_seconds_total", labels] += total.unused
    yield from ((*one, value) for one, value in sums.items())
    for pair, (soft, hard) in seen.limits.sizes.items():
        if (labels := user(*pair)) is not None and UNKNOWN not in labels:
            yield "limit_soft_bytes", labels, soft
            yield "limit_hard_bytes", labels, hard


class UserNames:
    """The users' names, which are kept: as long as a name is not known, it is asked for.

    A directory of users that is away says of each that there is no such user. So nobody is called `UNKNOWN` unless
    another person has a name at that time.
    """

    def __init__(self) -> None:
        self._found: dict[int, str] = {}
        self._hanging: list[threading.Thread] = []

    def of(self, uids: Set[int]) -> dict[int, str]:
        """Return the names that are known of users; `UNKNOWN` is that of one whom the system has none for."""
        if missing := sorted(uid for uid in uids if self._found.get(uid, UNKNOWN) == UNKNOWN):
            run_within(NAMES_TIMEOUT, partial(self._find, missing), self._hanging)
        return {uid: self._found[uid] for uid in uids if uid in self._found}

    def _find(self, uids: Sequence[int]) -> None:
        found = {uid: user_name(uid) for uid in uids}
        strangers = {uid for uid, name in found.items() if name == UNKNOWN}
        self._found |= {uid: name for uid, name in found.items() if uid not in strangers}
        people = [uid for uid in self._found.keys() - strangers if uid > SYSTEM_USERS]
        if strangers and any(map(_is_there, people)):
            self._found |= dict.fromkeys(strangers, UNKNOWN)


def _is_there(uid: int) -> bool:
    with contextlib.suppress(KeyError):
        return bool(pwd.getpwuid(uid))
    return False


def user_name(uid: int) -> str:
    """Return the name of a user, or `UNKNOWN`."""
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return UNKNOWN


LIMITS = Path("/run/tfgpu_limits/limits.json")
LIMITS_FRESH_FOR = 60.0
"""Seconds for which the file is true: its service writes it each second."""
_LONGEST = 2**22


def limits(board: Snapshot, now: float, file: Path = LIMITS) -> LimitFacts:
    """Return what the driver holds users to; nothing where no service says so.

    Args:
        board: tells whose a unit is by the processes in it.
        now: in seconds since the epoch.
        file: what `root` writes: soft, hard and why not, by cgroup and GPU.
    """
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        with file.open() as opened:
            if abs(now - os.fstat(opened.fileno()).st_mtime) > LIMITS_FRESH_FOR:
                return LimitFacts()
            state = json.loads(opened.read(_LONGEST))
        users = {row.cgroup: row.uid for row in board.processes if row.cgroup and row.uid is not None}
        sizes: dict[tuple[str, int], tuple[int | None, int | None]] = {}
        broken = len(state["left"]) + bool(state["flaw"])
        for path, gpus in state["limits"].items():
            unit = path.rpartition("/")[2]
            found = re.fullmatch(r"user-(\d{1,10})\.slice", unit)
            uid = int(found[1]) if found else users.get(f"unit:{unit}")
            for uuid, (soft, hard, why) in gpus.items():
                broken += bool(why)
                if uid is not None and not why:  # of two cgroups of a user the narrower is met first
                    before = sizes.get((uuid, uid), (None, None))
                    sizes[uuid, uid] = (
                        _least(before[0], soft or None),
                        _least(before[1], hard if hard < 2**63 else None),
                    )
        return LimitFacts(sizes, broken)
    return LimitFacts()


def _least(*sizes: int | None) -> int | None:
    return min((size for size in sizes if size is not None), default=None)


class Exporter(Collector):
    """The collector of Prometheus's client: it reads at each scrape. Thread-safe."""

    def __init__(self) -> None:
        person = os.geteuid() > SYSTEM_USERS
        self._watch = Watch(linger=LINGER, every=READING_EVERY) if person else None
        self._names, self._lock = UserNames(), threading.Lock()
        self._since: dict[Pair, float] | None = None
        self._unknown: dict[Pair, Total] = {}

    def collect(self) -> list[Metric]:
        """Return the metrics as they are now."""
        now = time.time()
        with self._lock:
            return make_metrics(self._read_machine(now), now)

    def _read_machine(self, now: float) -> MachineSeen:
        host = socket.gethostname()
        try:
            look, hours = self._read()
        except (MonitorError, OSError):
            return MachineSeen(host, None)
        if look.age is None or look.stale_since is not None or look.snapshot.error not in (None, ASLEEP):
            return MachineSeen(host, None)
        board = look.snapshot
        force = limits(board, now)
        totals = self._from_zero(hours, time.monotonic())
        users = {row.uid for row in board.processes} | {uid for _, uid in (*totals, *force.sizes)}
        names = self._names.of({uid for uid in users if uid is not None})
        seen = MachineSeen(host, board, totals, names, force)
        for pair, total in totals.items():
            if pair[1] is not None and seen.user_name(pair[1]) == UNKNOWN:
                self._unknown[pair] = total
        named = [pair for pair in self._unknown if pair in totals and seen.user_name(pair[1]) != UNKNOWN]
        return seen._replace(left={pair: self._unknown[pair] for pair in named})

    def _read(self) -> tuple[Reading, UsageTotals | None]:
        """Read the board, and what was counted.

        Raises:
            FileNotFoundError: there is no service here.
            MonitorError: its board, or the person's own, is not to be trusted or cannot be read.
        """
        if self._watch is not None:
            return self._watch.read(), None
        with contextlib.closing(MachineDirectory()) as place:
            return SnapshotReader(place).read(), read_totals(place)

    def _from_zero(self, hours: UsageTotals | None, now: float) -> Mapping[Pair, Total]:
        """Return the totals, but of one that has come up lately zero; not where it may have been there before.

        Args:
            hours: what was counted.
            now: in seconds, by a clock that nobody sets.
        """
        if hours is None:
            return {}
        before, totals = self._since, hours.totals
        self._since = {pair: 0.0 if before is None else before.get(pair, now) for pair in totals}
        return {pair: Total() if now - self._since[pair] < NEW_FOR else total for pair, total in totals.items()}


def _limit_clients(server: WSGIServer) -> None:
    """Limit how long a silent client may keep a thread, or, with TLS, all other clients."""

    class Handler(server.RequestHandlerClass):  # type: ignore[name-defined, misc]
        timeout = SILENT_FOR

        def log_message(self, *_: object) -> None: ...

        def handle(self) -> None:
            with contextlib.suppress(OSError):  # it said nothing, left, or is none whom the authorities know
                super().handle()

    server.RequestHandlerClass = Handler
    server.socket.listen(socket.SOMAXCONN)  # else five may wait, and who comes then for a second or three


class Encryption(NamedTuple):
    """The files of TLS, in PEM.

    Attributes:
        certificate: the server's own.
        key: its key.
        clients: the authorities whose clients alone are answered; None answers all.
    """

    certificate: str
    key: str
    clients: str | None = None

    def context(self) -> ssl.SSLContext:
        """Return what wraps a server's socket."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(self.certificate, self.key)
        if self.clients is not None:
            made.load_verify_locations(self.clients)
            made.verify_mode = ssl.CERT_REQUIRED
        return made


def serve(address: str, port: int, encryption: Encryption | None = None) -> None:
    """Answer Prometheus until this process is ended.

    Args:
        address: on which to listen, unless systemd passes a socket: nobody else can take its port at any time.
        port: on which to listen; 0 is any.
        encryption: for TLS; None is plain HTTP.

    Raises:
        TfGpuError: it cannot listen there, or the files of TLS cannot be used.
    """
    registry = CollectorRegistry()
    registry.register(Exporter())
    try:
        listening = _systemd_socket() or _open_socket(address, port)
        if encryption is not None:
            listening = encryption.context().wrap_socket(listening, server_side=True, do_handshake_on_connect=False)
    except (OSError, OverflowError, UnicodeError) as error:  # the latter two: no such port, or no such address, can be
        why = getattr(error, "strerror", None) or error
        raise TfGpuError(f"the exporter cannot listen on {address}, port {port}: {why}.") from error
    address, port = listening.getsockname()[:2]
    with ThreadingWSGIServer((address, port), WSGIRequestHandler, bind_and_activate=False) as server:
        server.socket.close()
        server.socket, server.server_name, server.server_port = listening, address, port
        server.setup_environ()
        server.set_app(make_wsgi_app(registry))
        _limit_clients(server)
        host = f"[{address}]" if ":" in address else address
        print(f"http{'s' if encryption else ''}://{host}:{port}/metrics", flush=True)
        server.serve_forever()


def _systemd_socket() -> socket.socket | None:
    """Return the socket that systemd has made for this process; None without one. Source: sd_listen_fds(3)."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or os.environ.get("LISTEN_FDS") != "1":
        return None
    os.set_inheritable(_FIRST_PASSED, False)
    return socket.socket(fileno=_FIRST_PASSED)


def _open_socket(address: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return socket.create_server((found[4][0], port), family=found[0])
