"""What Prometheus is told of a machine: pure, and by the real process beside the real service."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from tests.processes import ours
from tests.sizes import GIB
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.ground.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.lab import exporter
from tfgpu_magic.lab.counters import Total, UsageTotals
from tfgpu_magic.lab.exporter import METRICS, UNKNOWN, LimitFacts, MachineSeen, UserNames, make_metrics
from tfgpu_magic.machine.board.snapshot_file import Reading
from tfgpu_magic.machine.driver.schedule import ASLEEP
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgpu_magic.lab.counters import Pair

ANN, BEN = 1001, 1002
NAMES = {ANN: "ann", BEN: "ben"}
POD = f"pod:01234567-89ab-cdef-0123-456789abcdef/{'c' * 64}"
SENSORS: dict[str, float | None] = {"utilisation": 37, "temperature": 54, "power": 61.5}
GPU = Gpu(index=0, uuid="GPU-0", total=16 * GIB, used=9 * GIB, sensors=SENSORS)
HOURS: dict[Pair, Total] = {("GPU-0", ANN): Total(30.0, 20.0)}
COUNTERS = {("held_byte_seconds_total", "ann"): 30, ("held_unused_byte_seconds_total", "ann"): 20}

Told = dict[tuple[str, ...], float]
"""The samples, by the metric's name and the labels' values but the machine's."""


def row(uid: int | None, held: int | None, pid: int = 7, **more: Any) -> Process:
    return Process("0", pid, "C", held, 0, uid, 5)._replace(**more)


def board(*rows: Process, gpus: tuple[Gpu, ...] = (GPU,), at: float = 1e9) -> Snapshot:
    return Snapshot(time=at, driver="615.71", gpus=gpus, processes=rows, listed_at=at)


def told(seen: MachineSeen, now: float = 1e9) -> Told:
    samples = [sample for family in make_metrics(seen, now) for sample in family.samples]
    found = {
        (
            one.name.removeprefix("tfgpu_magic_"),
            *(one.labels[label] for label in one.labels if label != "hostname"),
        ): one
        for one in samples
    }
    assert len(found) == len(samples)  # none stands twice
    return {key: one.value for key, one in found.items()}


def of_users(seen: MachineSeen, now: float = 1e9) -> Told:
    """Return what is told of users: metric and user."""
    return {(key[0], key[-1]): value for key, value in told(seen, now).items() if "username" in METRICS[key[0]][1]}


def test_a_machine_its_gpus_and_what_each_user_holds_are_told() -> None:
    rows = (row(ANN, GIB, 7), row(ANN, 2 * GIB, 8, unused=9e8), row(BEN, 4 * GIB, 9, utilisation=40))
    hours: dict[Pair, Total] = {("GPU-0", ANN): Total(30.0, 20.0), ("GPU-9", ANN): Total(1.0)}
    force = LimitFacts({("GPU-0", BEN): (None, 6 * GIB)}, 2)
    found = told(MachineSeen("lab1", board(*rows), hours, NAMES, force))

    gpu, ann, ben = ("GPU-0", "0"), ("GPU-0", "0", "ann"), ("GPU-0", "0", "ben")
    version = next(key for key in found if key[0] == "info")
    assert version[2] == "615.71"
    assert found == {
        ("up",): 1, version: 1, ("last_reading_timestamp_seconds",): 1e9, ("limits_not_in_force",): 2,
        ("gpu_error", *gpu): 0, ("gpu_memory_total_bytes", *gpu): 16 * GIB, ("gpu_memory_used_bytes", *gpu): 9 * GIB,
        ("gpu_utilization_ratio", *gpu): 0.37, ("gpu_temperature_celsius", *gpu): 54, ("gpu_power_watts", *gpu): 61.5,
        ("held_bytes", *ann): 3 * GIB, ("held_bytes", *ben): 4 * GIB,
        ("held_unused_bytes", *ann): 2 * GIB, ("held_unused_bytes", *ben): 0,
        ("processes", *ann): 2, ("processes", *ben): 1,
        ("unused_processes", *ann): 1, ("unused_processes", *ben): 0,
        ("unknown_processes", *ann): 0, ("unknown_processes", *ben): 0,
        ("limit_hard_bytes", *ben): 6 * GIB,
        ("held_byte_seconds_total", *ann): 30, ("held_unused_byte_seconds_total", *ann): 20,
    }  # fmt: skip


def test_every_metric_is_told_with_the_labels_that_it_is_said_to_have() -> None:
    limits = LimitFacts({("GPU-0", ANN): (1, 2), ("GPU-0", BEN): (1, None)}, 0)
    seen = MachineSeen("lab1", board(row(ANN, GIB, cgroup=POD), row(BEN, GIB, 8)), HOURS, NAMES, limits)
    labels = {sample.name: tuple(sample.labels) for family in make_metrics(seen, 1e9) for sample in family.samples}

    assert labels == {f"tfgpu_magic_{name}": labels for name, (_, labels) in METRICS.items()}


@pytest.mark.parametrize(
    ("seen", "later", "expected"),
    [
        (board(row(ANN, 1), gpus=(GPU._replace(error="the GPU is lost"),)), 0, {}),
        (board(row(ANN, 1), gpus=(GPU._replace(listed=False),)), 0, {}),
        (board(row(ANN, 1)), 600, {}),  # the lists are too old
        (
            board(row(ANN, None), row(BEN, 1, 8)), 0,
            {("processes", "ann"): 1, ("unknown_processes", "ann"): 1, ("held_unused_bytes", "ann"): 0,
             ("unused_processes", "ann"): 0, ("held_bytes", "ben"): 1, ("processes", "ben"): 1,
             ("unknown_processes", "ben"): 0, ("held_unused_bytes", "ben"): 0, ("unused_processes", "ben"): 0},
        ),
        (
            board(row(ANN, 1, utilisation=None), row(ANN, 2, 8, utilisation=None)), 0,
            {("held_bytes", "ann"): 3, ("processes", "ann"): 2, ("unknown_processes", "ann"): 0},
        ),
    ],
)  # fmt: skip
def test_what_is_not_known_is_left_out_and_counters_stand_still(seen: Snapshot, later: float, expected: Told) -> None:
    assert of_users(MachineSeen("lab1", seen, HOURS, NAMES), 1e9 + later) == COUNTERS | expected


def test_of_a_gpu_that_is_lost_no_memory_is_told() -> None:
    lost = board(row(ANN, 1), gpus=(GPU._replace(error="the GPU is lost"),))

    assert ("gpu_memory_used_bytes", "GPU-0", "0") not in told(MachineSeen("lab1", lost))


def test_a_gpu_in_instances_counts_once() -> None:
    whole = GPU._replace(mig=True, used=None, sensors={})
    instance = Gpu(index=0, instance=1, uuid="MIG-1", total=4 * GIB, used=GIB)
    found = told(MachineSeen("lab1", board(row(ANN, GIB, gpu="0.1"), gpus=(whole, instance)), {}, NAMES))

    sizes = {key[1:]: value for key, value in found.items() if key[0] == "gpu_memory_total_bytes"}
    assert sizes == {("MIG-1", "0.1"): 4 * GIB}
    assert found["held_bytes", "MIG-1", "0.1", "ann"] == GIB


def test_containers_are_told_by_the_ids_of_their_cgroup_and_users_count_once() -> None:
    rows = (row(ANN, 1, 7, cgroup=POD), row(ANN, 2, 8, cgroup=POD), row(BEN, 4, 9, cgroup=f"container:{'d' * 64}"))
    found = told(MachineSeen("lab1", board(*rows, row(BEN, 8, 10, cgroup="unit:user-1002.slice")), {}, NAMES))

    assert {key[3:]: value for key, value in found.items() if key[0] == "pod_held_bytes"} == {
        ("01234567-89ab-cdef-0123-456789abcdef", "c" * 64): 3, ("", "d" * 64): 4,
    }  # fmt: skip
    assert sum(value for key, value in found.items() if key[0] == "held_bytes") == 15


def test_of_processes_that_are_counted_together_and_of_unknown_bytes_no_number_and_no_container_is_told() -> None:
    rows = (
        row(ANN, 1, 7, unused=9e8, cgroup=POD),
        row(ANN, 2, -1 - ANN),
        row(BEN, 4, 8, cgroup=f"container:{'d' * 64}"),
    )
    more = (row(BEN, 8, 9, cgroup=f"container:{'e' * 64}"), row(BEN, None, 10, cgroup=f"container:{'e' * 64}"))
    found = told(MachineSeen("lab1", board(*rows, *more), {}, NAMES))

    assert {key[0] for key in found if key[-1] == "ann"} == {"held_bytes"}
    assert [key[-1][0] for key in found if key[0] == "pod_held_bytes"] == ["d"]
    assert found["processes", "GPU-0", "0", "ben"] == 3


def test_while_the_gpus_sleep_the_time_of_a_reading_is_not_told() -> None:
    asleep = Snapshot(time=1e9, error=ASLEEP)

    assert {key[0] for key in told(MachineSeen("lab1", asleep))} == {"up", "info"}


def test_who_has_no_name_yet_is_waited_for_and_all_who_have_none_have_one() -> None:
    rows = (row(ANN, 1, 7), row(70_000, 2, 8), row(70_001, 4, 9), row(None, 8, 10))
    hours: dict[Pair, Total] = {("GPU-0", uid): Total(float(uid - 69_997)) for uid in (70_000, 70_001)}
    hours["GPU-0", ANN] = Total(1.0)
    seen = MachineSeen("lab1", board(*rows), hours, {70_000: UNKNOWN, 70_001: UNKNOWN})
    found = of_users(seen)

    assert {user for _, user in found} == {UNKNOWN}
    assert found["held_bytes", UNKNOWN] == 14
    assert found["held_byte_seconds_total", UNKNOWN] == 7


def test_a_directory_of_users_that_hangs_holds_up_nothing_and_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    never, asked = threading.Event(), list[int]()

    def hang(uid: int) -> str:
        asked.append(uid)
        never.wait()
        return f"user{uid}"

    monkeypatch.setattr(exporter, "NAMES_TIMEOUT", 0.01)
    monkeypatch.setattr(exporter, "user_name", hang)
    names = UserNames()
    before = names.of({ANN}), names.of({ANN, BEN})
    never.set()
    until(lambda: not any(thread.is_alive() for thread in names._hanging))

    assert before == ({}, {})
    assert names.of({ANN}) == {ANN: "user1001"}  # what came late is kept
    assert asked.count(ANN) == 1


def test_a_directory_of_users_that_is_away_makes_nobody_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {0: "root", ANN: "ann", BEN: "ben"}
    monkeypatch.setattr(exporter, "NAMES_TIMEOUT", 60.0)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: type("User", (), {"pw_name": there[uid]}))
    names = UserNames()
    known = dict(there)

    del there[ANN], there[BEN]
    assert names.of({0, ANN, BEN}) == {0: "root"}
    there |= known
    assert names.of({ANN, 70_000}) == {ANN: "ann", 70_000: UNKNOWN}
    del there[ANN], there[BEN]
    assert names.of({ANN, BEN, 70_000}) == {ANN: "ann", 70_000: UNKNOWN}
    there |= known
    assert names.of({BEN}) == {BEN: "ben"}


def test_what_has_counted_as_unknown_stays_so_when_its_user_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    made, at = exporter.Exporter(), time.time()
    totals: dict[Pair, Total] = {("GPU-0", ANN): Total(9.0), ("GPU-0", BEN): Total(5.0)}
    names = dict.fromkeys(NAMES, UNKNOWN)
    look = Reading(board(at=at), 1, 0.0)
    monkeypatch.setattr(made, "_read", lambda: (look, UsageTotals(totals)))
    monkeypatch.setattr(made._names, "of", lambda _: names)
    before = of_users(made._read_machine(at), at)
    names[ANN] = "ann"
    totals["GPU-0", ANN] = Total(11.0)
    after = of_users(made._read_machine(at), at)

    assert before["held_byte_seconds_total", UNKNOWN] == after["held_byte_seconds_total", UNKNOWN] == 14
    assert after["held_byte_seconds_total", "ann"] == 11


def test_limits_are_told_by_user_as_they_are_in_force(tmp_path: Path) -> None:
    none, file = 2**64 - 1, tmp_path / "limits.json"
    in_force = {
        "/sys/fs/cgroup/user.slice/user-1001.slice": {"GPU-0": [0, 4, ""], "GPU-1": [1, none, ""]},
        "/sys/fs/cgroup/system.slice/jupyter-ann.service": {"GPU-0": [3, 6, ""]},
        "/sys/fs/cgroup/system.slice/jupyter-ben.service": {"GPU-0": [0, 6, "the driver refused"]},
    }
    file.write_text(json.dumps({"driver": "615", "flaw": "", "limits": in_force, "left": {"/x": "not there"}}))
    now, there = file.stat().st_mtime, board(row(ANN, 1, cgroup="unit:jupyter-ann.service"))
    found = exporter.limits(there, now, file)

    assert found == LimitFacts({("GPU-0", ANN): (3, 4), ("GPU-1", ANN): (1, None)}, 2)
    assert exporter.limits(there, now + 600, file) == LimitFacts()  # whoever wrote it is not there
    file.write_text('{"limits": 3}')
    assert exporter.limits(there, now, file) == LimitFacts()
    assert exporter.limits(there, now, tmp_path / "none") == LimitFacts()


def test_a_counter_that_comes_up_begins_at_zero_and_one_that_was_there_does_not() -> None:
    made, restarted = exporter.Exporter(), exporter.Exporter()
    ann, ben = ("GPU-0", ANN), ("GPU-0", BEN)
    one, two = UsageTotals({ann: Total(3.0)}), UsageTotals({ann: Total(4.0), ben: Total(9.0)})

    assert made._from_zero(None, 1e9) == {}  # not to be read: not nothing
    assert made._from_zero(one, 1e9) == one.totals
    assert made._from_zero(two, 1e9 + 15) == {ann: Total(4.0), ben: Total()}
    assert made._from_zero(None, 1e9 + 30) == {}
    assert made._from_zero(two, 1e9 + 15 + exporter.NEW_FOR) == two.totals
    assert restarted._from_zero(two, 1e9 + 200) == two.totals


def test_a_clock_that_is_set_back_takes_nothing_from_a_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    made, clock = exporter.Exporter(), {"wall": time.time(), "mono": 1e6}
    totals: dict[Pair, Total] = {}
    look = Reading(board(), 1, 0.0)
    monkeypatch.setattr(made, "_read", lambda: (look, UsageTotals(totals)))
    monkeypatch.setattr(exporter, "NAMES_TIMEOUT", 60.0)
    monkeypatch.setattr(exporter, "time", SimpleNamespace(time=lambda: clock["wall"], monotonic=lambda: clock["mono"]))

    def told_of_root() -> list[float]:
        samples = [sample for family in made.collect() for sample in family.samples]
        return [one.value for one in samples if one.name == "tfgpu_magic_held_byte_seconds_total"]

    assert told_of_root() == []
    totals["GPU-0", 0] = Total(9.0)
    assert told_of_root() == [0]
    clock = {"wall": clock["wall"] + exporter.NEW_FOR, "mono": clock["mono"] + exporter.NEW_FOR}
    assert told_of_root() == [9]
    clock["wall"] -= 3600
    assert told_of_root() == [9]


@contextlib.contextmanager
def running(machine: Machine, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a command of ours; give it with the first line that it prints, which the service does not."""
    process = machine.popen(
        [sys.executable, "-m", "tfgpu_magic", *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout
    try:
        yield process, process.stdout.readline().strip() if words[0] == "exporter" else ""
    finally:
        process.kill()
        process.communicate()


def scraped(url: str, context: ssl.SSLContext | None = None) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the samples by metric, and by the labels' values but the GPU's UUID and the machine."""
    with urllib.request.urlopen(url, context=context, timeout=60) as answer:
        text = answer.read().decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name not in ("uuid", "hostname")}
            found.setdefault(sample.name.removeprefix("tfgpu_magic_"), {})[tuple(labels.values())] = sample.value
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="a person's exporter has that person's own board")
def test_beside_the_service_it_tells_what_is_held_and_without_it_that_it_is_not_up(
    machine: Machine, tmp_path: Path
) -> None:
    neighbour, user = machine.add_neighbour("2GiB@1"), ("1", "root")
    with running(machine, "exporter", "--port", "0") as (process, url):
        assert url.startswith("http://127.0.0.1:")
        assert scraped(url) == {"up": {(): 0}}
        assert ours(machine, "machine.collector") == []  # nobody asks the driver for it
        assert not (tmp_path / "own").exists()
        with running(machine, "collect") as (service, _):
            found = until(lambda: scraped(url), lambda found: "held_byte_seconds_total" in found)
            with running(machine, "exporter", "--port", "0") as (_, other):
                hours = until(lambda: scraped(other).get("held_byte_seconds_total"))
            with neighbour:
                pass  # its end
            ended = until(lambda: scraped(url), lambda found: found["up"][()] and "held_bytes" not in found)
            service.kill()
            gone = until(lambda: scraped(url), lambda found: found["up"][()] == 0)
        assert process.poll() is None

    assert found["up"] == {(): 1}
    assert found["held_bytes"] == {user: 2 * GIB}
    assert found["gpu_memory_used_bytes"] == {("0",): 0, ("1",): 2 * GIB}
    assert list(found["held_byte_seconds_total"]) == [user]
    assert hours
    assert hours[user] > 0
    assert user in ended["held_byte_seconds_total"]
    assert list(gone) == ["up"]


def test_run_by_a_person_without_a_service_it_has_that_persons_board(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: 1001)
        person = exporter.Exporter()
    neighbour = machine.add_neighbour("2GiB@1")

    def seen() -> Told:
        samples = [sample for family in person.collect() for sample in family.samples]
        return {(one.name, *one.labels.values()): one.value for one in samples if one.name == "tfgpu_magic_held_bytes"}

    assert list(until(seen).values()) == [2 * GIB]
    assert person._watch
    person._watch.close()
    with neighbour:
        pass


def test_clients_that_say_nothing_are_left(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(client: socket.socket) -> bool:
        with contextlib.suppress(ConnectionResetError):
            return client.recv(1) == b""
        return True

    monkeypatch.setattr(exporter, "SILENT_FOR", 0.1)
    server, _ = start_http_server(0, "127.0.0.1", CollectorRegistry())
    exporter._limit_clients(server)
    with server, socket.create_connection(("127.0.0.1", server.server_port)) as client:
        client.settimeout(60 * SLACK)
        assert closed(client)
        server.shutdown()


def test_with_tls_it_answers_only_whom_the_authorities_know(machine: Machine, tmp_path: Path) -> None:
    key, cert = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, *subject]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl here")
    known, stranger = (ssl.create_default_context(cafile=cert) for _ in range(2))
    known.load_cert_chain(cert, key)
    with running(machine, "exporter", "--port", "0", "--cert", cert, "--key", key, "--client-ca", cert) as (_, url):
        assert url.startswith("https://127.0.0.1:")
        host, port = url.removeprefix("https://").removesuffix("/metrics").split(":")
        with socket.create_connection((host, int(port))):  # says nothing, and holds up nobody
            assert scraped(url, known) == {"up": {(): 0}}
        with pytest.raises(OSError):  # what TLS says is the system's
            scraped(url, stranger)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--cert", "/nowhere.pem"], "HTTPS needs both --cert and --key"),
        (["--cert", "/nowhere.pem", "--key", "/nowhere.pem"], "cannot listen"),
        (["--address", "192.0.2.1"], "cannot listen on 192.0.2.1"),
        (["--address", "a..b"], "cannot listen on a..b"),
        (["--port=70000"], "--port is a number up to 65535, not '70000'"),
    ],
)
def test_where_it_cannot_listen_it_says_why(words: list[str], why: str) -> None:
    done = subprocess.run([sys.executable, "-m", "tfgpu_magic", "exporter", *words], capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
    assert "Traceback" not in done.stderr


def test_without_prometheus_client_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from tfgpu_magic.command.main import main; main(['exporter'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert "pip install prometheus-client" in done.stderr
    assert "Traceback" not in done.stderr
