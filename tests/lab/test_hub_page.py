"""The Hub's page: whose figures a real JupyterHub's users see, from the machine and from a real Prometheus."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import pwd
import re
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tests.jupyter import free_port
from tests.lab.prometheus import ROOT, Samples, prometheus
from tests.sizes import GIB
from tfgpu_magic.errors import TfGpuError
from tfgpu_magic.host import SIMULATED
from tfgpu_magic.lab import culler, exporter, usage
from tfgpu_magic.lab.counters import HOURS, Pair, Total
from tfgpu_magic.lab.counters import Hours as Counted
from tfgpu_magic.lab.usage import Hold, MachineUsage, Prometheus, Spent, Usage
from tfgpu_magic.model.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.monitor.board.machine_board import SYSTEM_USERS, MachineDirectory
from tfgpu_magic.monitor.board.snapshot_file import Writer

pytest.importorskip("jupyterhub", reason="the group `test` has it")
from tests.lab.hub import Hub, Visitor, running
from tfgpu_magic.lab import hub_page

HOUR, DAY = 3600, 24 * 3600
ANN, BEN, BOSS = "daemon", "bin", "root"  # users whom each Linux has
UIDS = {name: pwd.getpwnam(name).pw_uid for name in (ANN, BEN, BOSS)}
HELD = {ANN: 6, BEN: 3}
"""GiB that are held now, on the machine and by Prometheus; all of the first is unused."""
MACHINE = {ANN: (41, 31), BEN: (23, 7)}
"""GiB-hours on the machine, and those without use."""
GROWTH = ((20, ANN, 100, 90), (20, BEN, 60, 10), (3, ANN, 50, 40), (3, BEN, 30, 5))
"""By Prometheus: so many days ago begins an hour, of which a user has GiB-hours, and so many of them without use."""
WEEK, MONTH = {ANN: (50, 40), BEN: (30, 5)}, {ANN: (150, 130), BEN: (90, 15)}
EVERYBODY = "All users, and their GiB-hours"
LABELS = ("hostname", "gpu", "uuid", "username")
ON_0, ON_1 = ("lab1", "0", "GPU-0"), ("lab1", "1", "GPU-1")
service_only = pytest.mark.skipif(os.geteuid() > SYSTEM_USERS, reason="a person's page has that person's own board")


def publish(writer: Writer) -> None:
    """Write what the machine's service would: a reading with what both users hold."""
    now = time.time()
    ann, ben = (Process("0", 10 + uid, "C", HELD[user] * GIB, 0, uid, 5) for user, uid in UIDS.items() if user in HELD)
    gpu = Gpu(index=0, uuid="GPU-0", total=16 * GIB, used=9 * GIB, utilisation=30)
    rows = (ann._replace(unused=now - 2 * HOUR), ben)
    writer.publish(Snapshot(time=now, gpus=(gpu,), processes=rows, listed_at=now))


@pytest.fixture(scope="module")
def machine() -> Iterator[Writer]:
    """A machine's board, which is fresh as long as this lasts, and its hours."""
    with tempfile.TemporaryDirectory() as run, pytest.MonkeyPatch.context() as patched:
        Path(run).chmod(0o755)
        Path(run, "machine.run").mkdir(mode=0o755)
        patched.setenv(SIMULATED, f"{run}/machine")
        with contextlib.closing(MachineDirectory()) as place, contextlib.closing(Writer(place)) as writer:
            totals: dict[Pair, Total] = {}
            for user, both in MACHINE.items():
                totals["GPU-0", UIDS[user]] = Total(*(GIB * HOUR * one for one in both))
            Path(run, "machine.run", HOURS).write_text(Counted(totals, time.time() - DAY).to_json())
            end = threading.Event()

            def go_on() -> None:
                while not end.wait(0.5):
                    publish(writer)

            publish(writer)
            thread = threading.Thread(target=go_on)
            thread.start()
            yield writer
            end.set()
            thread.join()


def scraped() -> Samples:
    """Return what Prometheus has: the hours in which counters grow, and from ten minutes ago to an hour from now."""
    made, now = Samples(), int(time.time())
    for begin in (now - 20 * DAY, now - 3 * DAY, now - 600):
        for at in range(begin, begin + 2 * HOUR, 60):
            made.add(counters(now, at), at)
            made.add([gauge("up", {(host,): 1 for host in ("lab1", "lab2")[: 1 if at > now - DAY else 2]})], at)
            if at > now - DAY:
                made.add(
                    [
                        gauge("held_bytes", {(*ON_0, user): size * GIB for user, size in HELD.items()}),
                        gauge("held_unused_bytes", {(*ON_0, ANN): HELD[ANN] * GIB, (*ON_0, BEN): 0}),
                        gauge("unknown_processes", {(*ON_0, ANN): 0, (*ON_1, BEN): 1}),
                        gauge("gpu_error", {ON_0: 0, ON_1: 1}),
                        # What a user's own server may answer, if it is scraped as well:
                        gauge("up", {("lab3",): 0}, "servers"),
                        gauge("held_bytes", {(*ON_0, BEN): 1e15, (*ON_1, ANN): math.nan}, "servers"),
                    ],
                    at,
                )
    return made


def counters(now: int, at: int) -> Iterator[Metric]:
    for column, name in enumerate(("held", "held_unused")):
        family = CounterMetricFamily(f"tfgpu_magic_{name}_byte_seconds_total", "", labels=("job", *LABELS))
        for user in HELD:
            parts = ((both[column], (at - now + days * DAY) / HOUR) for days, one, *both in GROWTH if one == user)
            hours = sum(most * min(1.0, max(0.0, done)) for most, done in parts)
            family.add_metric(["tfgpu", *ON_0, user], hours * GIB * HOUR)
            family.add_metric(["servers", *ON_0, user], 1000 * hours * GIB * HOUR)
        yield family


def gauge(name: str, values: Mapping[tuple[str, ...], float], job: str = "tfgpu") -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"tfgpu_magic_{name}", "", labels=("job", *LABELS[: len(next(iter(values)))]))
    for labels, value in values.items():
        family.add_metric((job, *labels), value)
    return family


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give where the real Prometheus is."""
    folder = tmp_path_factory.mktemp("prometheus") / "data"
    scraped().blocks(folder)
    with prometheus(folder, ROOT / "grafana" / "rules.yml") as found:
        yield found.url


def read(url: str, user: str | None) -> Usage:
    async def once() -> Usage:
        return await Prometheus(url).read(user)

    return asyncio.run(once())


def gib_hours(spent: Mapping[str, Spent] | None) -> dict[str, tuple[float, float]]:
    assert spent is not None
    return {user: (one.held / GIB / HOUR, one.unused / GIB / HOUR) for user, one in spent.items()}


def test_prometheus_has_everybodys_figures(asked: str) -> None:
    found = read(asked, None)

    assert found.holds == {
        ANN: [Hold("lab1", "0", 6 * GIB, 6 * GIB)],
        BEN: [Hold("lab1", "0", 3 * GIB, 0), Hold("lab1", "1", None, None)],
    }
    assert list(found.spent) == ["7 days", "30 days"]
    for span, expected in zip(found.spent.values(), (WEEK, MONTH), strict=True):
        assert gib_hours(span) == {user: pytest.approx(both, rel=0.01) for user, both in expected.items()}
    assert found.flaws == ["lab2 does not tell its figures now.", "GPU 1 of lab1 cannot be read."]


def test_of_one_user_it_is_asked_for_that_user_alone(asked: str) -> None:
    found = read(asked, BEN)

    assert found.holds is not None
    assert list(found.holds) == [BEN]
    assert [list(spent or ()) for spent in found.spent.values()] == [[BEN], [BEN]]


@pytest.mark.parametrize(
    "name",
    [
        'daemon"} or {username!="',
        'x", __name__=~".*", username=~".*',
        'daemon\\"} or {username!="',
        "daemon\n",
        ".*",
        "daemon|bin",
        "\\x64aemon",
        "ünï\U0001f600\u2028\x7f\x00",
        "",
    ],
)
def test_a_name_is_nothing_but_a_name(asked: str, name: str) -> None:
    """It is answered, and nobody's figures are."""
    found = read(asked, name)

    assert found.holds == {}
    assert found.spent == {"7 days": {}, "30 days": {}}


class Nonsense(BaseHTTPRequestHandler):
    """What answers as if it were a Prometheus."""

    status, text, slow = 200, b"", False

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        with contextlib.suppress(OSError):
            while self.slow:
                self.wfile.write(b" ")
                time.sleep(0.05)
            self.wfile.write(self.text)

    def log_message(self, *_: object) -> None:
        pass


def vector(*values: object) -> bytes:
    """Return an answer: the last value is of a machine, each other one of a user's hold on a GPU."""
    names = (*["held_bytes"] * (len(values) - 1), "up")
    result = [
        {
            "metric": {
                "__name__": f"tfgpu_magic_{name}", "hostname": "lab1", "gpu": "0", "uuid": f"GPU-{at}", "username": ANN,
            },
            "value": [1, value],
        }
        for at, (name, value) in enumerate(zip(names, values, strict=True))
    ]  # fmt: skip
    return json.dumps({"status": "success", "data": {"result": result}}).encode()


@contextlib.contextmanager
def answering(**more: Any) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("One", (Nonsense,), more))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    "more",
    [
        {"status": 503, "text": b"<h1>away</h1>"},
        {"status": 302},
        {"text": b"<!doctype html>"},
        {"text": b"[1]"},
        {"text": b"null"},
        {"text": vector(None)},
        {"text": vector("x")},
        {"text": b"[" * 100_000},
        {"text": b" " * (usage.MOST_BYTES + 1)},
        {"slow": True},
    ],
)
def test_one_that_is_slow_or_says_nonsense_tells_nothing(more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    if "slow" in more:
        monkeypatch.setattr(usage, "QUERY_TIMEOUT", 0.5)
    with answering(**more) as url:
        found = read(url, None)

    assert found.holds is None
    assert found.spent == {"7 days": None, "30 days": None}
    assert found.flaws == ["Prometheus does not answer as it should."]


@pytest.mark.parametrize("wrong", ["NaN", "+Inf", "-1"])
def test_a_figure_that_cannot_be_is_left_out_alone_and_told_of(wrong: str) -> None:
    with answering(text=vector(str(GIB), wrong, "1")) as url:
        found = read(url, None)

    assert found.holds == {ANN: [Hold("lab1", "0", GIB, None)]}
    assert found.flaws == ["Prometheus has figures that cannot be: they are left out."]


def test_two_machines_of_one_name_have_gpus_of_their_own() -> None:
    with answering(text=vector(str(8 * GIB), str(2 * GIB), "1")) as url:
        found = read(url, None)

    assert found.holds == {ANN: [Hold("lab1", "0", 8 * GIB, None), Hold("lab1", "0", 2 * GIB, None)]}


def test_one_that_is_not_there_tells_nothing() -> None:
    assert read(f"http://127.0.0.1:{free_port()}", None).holds is None


@service_only
def test_a_machine_has_the_hours_since_it_was_started(machine: Writer) -> None:
    source = MachineUsage()
    for _ in range(2):  # a counter that has come up between two looks is no zero here
        found = asyncio.run(source.read(None))

    assert found.holds == {
        ANN: [Hold(socket.gethostname(), "0", 6 * GIB, 6 * GIB)],
        BEN: [Hold(socket.gethostname(), "0", 3 * GIB, 0)],
    }
    ((since, spent),) = found.spent.items()
    assert since.startswith("since ")
    assert gib_hours(spent) == MACHINE
    assert "begin anew when it is started." in found.counted


def test_a_machine_without_figures_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SIMULATED, str(tmp_path / "none"))
    monkeypatch.setattr(MachineUsage, "_read", lambda _: (_ for _ in ()).throw(FileNotFoundError()))

    assert asyncio.run(MachineUsage().read(None)) == Usage(
        None, {}, [f"{socket.gethostname()} does not tell its figures now."]
    )


def test_hours_that_may_not_be_read_are_no_zero(machine: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "read", lambda _: None)
    found = asyncio.run(MachineUsage().read(None))

    assert found.spent == {}
    assert found.flaws[0].startswith("For how long memory was held is not known to this page.")


@pytest.fixture(scope="module")
def hub(machine: Writer, asked: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    services = {
        "machine": [],
        "prometheus": ["--prometheus", asked],
        "away": ["--prometheus", f"http://127.0.0.1:{free_port()}"],
    }
    environment = {SIMULATED: os.environ[SIMULATED]}
    with running(tmp_path_factory.mktemp("hub"), [ANN, BEN, BOSS], services, environment) as hub:
        yield hub


@pytest.fixture(scope="module")
def visitors(hub: Hub) -> dict[str, Visitor]:
    return {name: Visitor(hub, name).log_in() for name in (ANN, BEN, BOSS)}


def rows(text: str) -> dict[str, list[list[str]]]:
    """Return the cells of each table of a page, by its caption."""
    found = {}
    for caption, body in re.findall(r"<caption>(.*?)</caption>.*?<tbody>(.*?)</tbody>", text):
        lines = re.findall(r"<tr>(.*?)</tr>", body)
        cells = [re.findall(r"<t[hd].*?</t[hd]>", line) for line in lines]
        found[caption] = [[re.sub("<.*?>", "", cell) for cell in line] for line in cells]
    return found


def shown(visitors: Mapping[str, Visitor], name: str, service: str) -> tuple[dict[str, list[list[str]]], str]:
    status, text = visitors[name].open(f"/services/{service}/")
    assert status == 200, text
    return rows(text), text


@service_only
def test_a_user_sees_what_they_hold_and_held(hub: Hub, visitors: dict[str, Visitor]) -> None:
    tables, text = shown(visitors, ANN, "prometheus")
    here, _ = shown(visitors, ANN, "machine")

    assert list(tables) == ["Held now", "GiB-hours"]
    assert tables["Held now"] == [["lab1", "0", "6.0 GiB", "6.0 GiB"]]
    week, month = tables["GiB-hours"]
    assert [float(one) for one in week[1:]] == pytest.approx(WEEK[ANN], rel=0.01)
    assert [float(one) for one in month[1:]] == pytest.approx(MONTH[ANN], rel=0.01)
    assert "lab2 does not tell its figures now." in text
    assert here["Held now"] == [[socket.gethostname(), "0", "6.0 GiB", "6.0 GiB"]]
    assert [line[1:] for line in here["GiB-hours"]] == [["41.0", "31.0"]]


@service_only
@pytest.mark.parametrize("service", ["machine", "prometheus"])
@pytest.mark.parametrize(
    "path",
    [
        "", "?user=bin", "?username=bin&name=bin", "?next=bin&token=x", "bin", "bin/", "all", "?all", "%2e%2e/bin",
        "?user=root&admin=true", "oauth_callback?code=x&state=x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
def test_nobody_sees_anybody_else_by_any_address(
    hub: Hub, visitors: dict[str, Visitor], service: str, path: str, method: str
) -> None:
    more = {"X-Forwarded-User": BEN, "X-Username": BEN, "Remote-User": BEN}
    _, text = visitors[ANN].open(f"/services/{service}/{path}", method, **more)
    tables = rows(text)
    cells = {cell for table in tables.values() for line in table for cell in line}

    assert bool(tables) == (method == "GET" and path.partition("?")[0] in ("", "oauth_callback"))
    assert EVERYBODY not in tables
    assert BEN not in cells
    figures = [float(found[1]) for cell in cells if (found := re.fullmatch(r"(\d+\.\d)( GiB)?", cell))]
    others = (HELD[BEN], *MACHINE[BEN], *WEEK[BEN], *MONTH[BEN])
    assert not [figure for figure in figures for other in others if figure == pytest.approx(other, rel=0.02)]


@service_only
def test_an_administrator_sees_all_users_and_first_whose_memory_was_unused_most(
    hub: Hub, visitors: dict[str, Visitor]
) -> None:
    tables, text = shown(visitors, BOSS, "prometheus")
    here, _ = shown(visitors, BOSS, "machine")

    assert "you hold no GPU memory now" in text
    assert [line[:4] for line in tables[EVERYBODY]] == [
        [ANN, "lab1:\xa00", "6.0 GiB", "6.0 GiB"],
        [BEN, "lab1:\xa00\xa01", "N/A", "N/A"],
    ]
    for line in tables[EVERYBODY]:
        assert [float(one) for one in line[4:]] == pytest.approx((*WEEK[line[0]], *MONTH[line[0]]), rel=0.01)
    assert [line[4:] for line in here[EVERYBODY]] == [["41.0", "31.0"], ["23.0", "7.0"]]


@service_only
def test_without_its_prometheus_a_page_has_no_figure_and_no_zero(hub: Hub, visitors: dict[str, Visitor]) -> None:
    for name in (ANN, BOSS):
        tables, text = shown(visitors, name, "away")

        assert tables["GiB-hours"] == [["7 days", "N/A", "N/A"], ["30 days", "N/A", "N/A"]]
        assert "Prometheus does not answer as it should." in text
        assert "What you hold now is not known." in text
        assert "hold no GPU" not in text
        assert "0.0" not in {cell for table in tables.values() for line in table for cell in line}


def test_who_is_not_logged_in_gets_to_the_hub_and_no_further(hub: Hub) -> None:
    assert hub.ask("/services/machine/").headers["Location"].startswith("/hub/api/oauth2/authorize?")

    status, text = Visitor(hub, ANN).open("/services/machine/")
    assert (status, "GPU memory of" in text) == (200, False)


def test_a_service_is_no_user_of_that_name(hub: Hub) -> None:
    """Its token opens services, and it is called as a Unix user is."""
    status, text = Visitor(hub, "").open("/services/machine/", Authorization=f"token {hub.token}")

    assert status == 403
    assert "The Hub does not let you see this page." in text


def test_a_login_that_was_not_begun_here_is_none(hub: Hub) -> None:
    status, _ = Visitor(hub, ANN).open("/services/machine/oauth_callback?code=x&state=x")

    assert status in (400, 403)


def test_the_page_runs_and_loads_nothing(hub: Hub, visitors: dict[str, Visitor]) -> None:
    ann = visitors[ANN]
    ann.open("/services/machine/")
    answer = hub.ask("/services/machine/", ann.cookies)
    text = answer.text  # type: ignore[attr-defined]

    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'unsafe-inline';")
    assert answer.headers["Cache-Control"] == "no-store"
    assert not re.search(r"<script|<img|<link|<a |<form|<iframe|url\(|@import| on\w+=", text)


DUE = {
    "name": "train.ipynb", "path": "", "held": 5 * GIB, "idle": 3 * HOUR, "told": HOUR, "rests": 0.0,
    "due": {"park": HOUR, "stop": 20 * HOUR},
}  # fmt: skip
TRAIN = ["train.ipynb", "5.0 GiB", "3 h"]


def told(notebook: object, *, known: object = True, status: int = 409) -> tuple[int, object]:
    return status, {"known": known, "busy": False, "notebooks": [notebook]}


def over(one: object) -> tuple[int, object]:
    return 409, {"known": True, "busy": False, "notebooks": [], "over": {"0": one}}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            told(DUE),
            [[*TRAIN, "1 h ago: parked in 1 h and shut down in 20 h"]],
        ),
        (told(DUE | {"told": None}), [[*TRAIN, "nothing yet"]]),
        (
            told(DUE | {"rests": HOUR}),
            [[*TRAIN, "not today: put off for 1 h more"]],
        ),
        (told(DUE | {"held": None, "due": {}}), [["train.ipynb", "N/A", "3 h", "1 h ago: it is idle"]]),
        (
            told(DUE | {"name": "<script>\u202e&", "told": None}),
            [["&lt;script&gt;?&amp;", "5.0 GiB", "3 h", "nothing yet"]],
        ),
        (told(DUE | {"held": GIB // 8}), "No notebook of your server holds GPU memory idly."),
        (told(DUE | {"idle": 0.0}), "No notebook of your server holds GPU memory idly."),
        (told(DUE, known=False), "Your server does not know now what is idle."),
        (told(DUE, known="yes"), "Your server does not know now what is idle."),
        (over({"held": 5 * GIB, "bound": 4 * GIB}), "Your processes together hold 5 GiB of GPU 0. "),
        (over({"held": "&lt;", "bound": 1}), "No server of yours tells of idle notebooks now."),
        ((404, "no such page"), "Your server takes no steps with idle notebooks."),
        (told(DUE, status=302), "No server of yours tells of idle notebooks now."),
        (told("a text"), "No server of yours tells of idle notebooks now."),
        (told(DUE | {"idle": 1e999}), "No server of yours tells of idle notebooks now."),
        (told(DUE | {"due": 3}), "No server of yours tells of idle notebooks now."),
        ((409, b"[" * 100_000), "No server of yours tells of idle notebooks now."),
        ((409, b" " * (culler.LARGEST_ANSWER + 1)), "No server of yours tells of idle notebooks now."),
        ((503, None), "No server of yours tells of idle notebooks now."),
    ],
)
def test_what_a_user_was_told_is_what_the_users_own_server_says(
    hub: Hub, visitors: dict[str, Visitor], answer: tuple[int, Any], expected: list[list[str]] | str
) -> None:
    hub.answers[ANN] = answer
    tables, text = shown(visitors, ANN, "machine")

    assert tables.get("Idle notebooks") == (expected if isinstance(expected, list) else None)
    assert isinstance(expected, list) or expected in text


def test_a_server_gets_no_token_but_its_own_users_and_that_opens_little(hub: Hub, visitors: dict[str, Visitor]) -> None:
    for name in (ANN, BOSS):
        del hub.asked[:]
        visitors[name].open("/services/machine/")
        ((path, token),) = hub.asked
        opens = json.loads(hub.ask("/hub/api/user", headers={"Authorization": token}).text)  # type: ignore[attr-defined]

        assert path == f"/user/{name}/tfgpu-magic/idle?culler"
        assert (opens["name"], opens["kind"]) == (name, "user")
        assert not [one for one in opens["scopes"] if one.startswith(("admin", "tokens", "servers", "delete"))]
        assert [one for one in opens["scopes"] if one.startswith("access:servers")] == [f"access:servers!user={name}"]


def test_a_programs_token_opens_the_page_and_is_not_passed_on(hub: Hub) -> None:
    own = {"Authorization": f"token {hub.token}"}
    made = hub.ask(f"/hub/api/users/{ANN}/tokens", method="POST", body="{}", headers=own)
    token = json.loads(made.text)["token"]  # type: ignore[attr-defined]
    del hub.asked[:]
    status, text = Visitor(hub, ANN).open("/services/machine/", Authorization=f"token {token}")

    assert (status, f"GPU memory of {ANN}" in text) == (200, True)
    assert hub.asked == []


def test_a_user_called_unknown_does_not_get_what_nobody_is_known_to_hold() -> None:
    """The exporter calls all so whom the system has no name for."""
    seen = Usage({"unknown": [Hold("lab1", "0", 1.0, 1.0)]}, {"7 days": {"unknown": Spent(1.0, 1.0)}}, [])
    text = "".join(map(str, hub_page._own(seen, "unknown")))

    assert text == "The figures of a user called unknown are not known."


def test_figures_are_read_once_for_all_who_look_at_the_same_time() -> None:
    class Slow(Prometheus):
        reads = 0

        async def read(self, user: str | None) -> Usage:
            self.reads += 1
            await asyncio.sleep(0.01)
            return Usage(None, {}, [str(user)])

    async def look() -> tuple[int, set[str]]:
        source = Slow("http://127.0.0.1:1")
        figures = hub_page.SharedUsage(source)
        found = await asyncio.gather(*(figures.of(user) for user in [ANN, BEN] * 20))
        return source.reads, {one.flaws[0] for one in found}

    assert asyncio.run(look()) == (2, {ANN, BEN})


def test_who_leaves_takes_no_figures_from_others_and_none_are_kept_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Prometheus):
        async def read(self, user: str | None) -> Usage:
            await asyncio.sleep(0.01)
            return Usage(None, {}, [str(user)])

    async def look() -> tuple[list[str], int]:
        figures = hub_page.SharedUsage(Slow("http://127.0.0.1:1"))
        leaves, stays = (asyncio.create_task(figures.of(ANN)) for _ in range(2))
        await asyncio.sleep(0)
        leaves.cancel()
        seen = list((await stays).flaws)
        monkeypatch.setattr(hub_page, "KEPT_FOR", 0.0)
        for name in (BEN, BOSS):
            seen += (await figures.of(name)).flaws
        return seen, len(figures._kept)

    assert asyncio.run(look()) == ([ANN, BEN, BOSS], 1)


def test_nothing_is_what_nobody_holds_and_not_what_is_not_known() -> None:
    spent = {"7 days": {ANN: Spent(8.0 * GIB * HOUR, 0.0)}}
    away, there = (
        rows("".join(map(str, hub_page._everybody(Usage({}, spent, flaws)))))[EVERYBODY][0]
        for flaws in (["lab2 does not tell its figures now."], [])
    )

    assert (away[-4:], there[-4:]) == (["N/A", "N/A", "8.0", "0.0"], ["-", "-", "8.0", "0.0"])


@pytest.mark.parametrize("users", ["hub-{nam}", "{", "everybody", "{}", "{name.x}"])
def test_a_template_has_to_tell_users_apart(users: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/services/gpus/")
    monkeypatch.setenv("JUPYTERHUB_SERVICE_URL", "http://127.0.0.1:0")

    with pytest.raises(TfGpuError, match="does not name the Unix user"):
        asyncio.run(hub_page.serve(None, "http://127.0.0.1:8000", users))


def test_only_a_hub_starts_it() -> None:
    with pytest.raises(TfGpuError, match="JUPYTERHUB_SERVICE_PREFIX is not set"):
        asyncio.run(hub_page.serve(None, "http://127.0.0.1:8000", "{name}"))
