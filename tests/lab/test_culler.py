"""The hook of jupyterhub-idle-culler, in its own round over a Hub's users: whom it stops, and whom never."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pwd
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.sizes import GIB
from tfgpu_magic import policy
from tfgpu_magic.lab import culler
from tfgpu_magic.lab.culler import arbiter
from tfgpu_magic.model.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.monitor.board.machine_board import MachineDirectory
from tfgpu_magic.monitor.board.snapshot_file import Writer

idle_culler = pytest.importorskip("jupyterhub_idle_culler", reason="the group `test` has it")
HOUR, MINUTES = 3600.0, 15
ONE: dict[str, Any] = {"held": 5 * GIB, "told": 22 * HOUR}
TOLD = {"known": True, "busy": False, "notebooks": [ONE]}
ROW = Process("0", 77, "C", 5 * GIB, 0, uid=os.getuid(), began=5, unused=1e9)


class FakeHub(BaseHTTPRequestHandler):
    """A Hub with one user, as the culler and its hook ask it, and that user's server behind its proxy."""

    told: Any = TOLD
    status, asks, trickles = 201, "/user/root/tfgpu-magic/idle?culler", False
    ended: list[str]
    ordered: list[Any]
    at_servers: list[tuple[str, str | None]]
    gone: threading.Event

    def do_GET(self) -> None:
        if self.path.startswith("/hub/"):
            self.of_hub()
        else:
            self.of_server()

    def of_server(self) -> None:
        """Answer as the user's own program, which keeps what it is told."""
        self.at_servers.append((self.path, self.headers["Authorization"]))
        if self.path != self.asks:
            self.send_response(302)
            self.send_header("Location", self.asks)
            self.end_headers()
            return
        self.send_response(404 if self.told is None else 409)
        self.end_headers()
        with contextlib.suppress(OSError):
            while self.trickles:
                self.wfile.write(b" ")
                time.sleep(0.01)
            self.wfile.write(json.dumps(self.told).encode())
        self.gone.set()

    def of_hub(self) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        server = {"name": "", "url": "/user/root/", "ready": True, "started": now, "last_activity": now}
        users = [{"name": "root", "admin": False, "created": now, "last_activity": now, "servers": {"": server}}]
        found = {"/hub/api/": {"version": "5.4.0"}, "/hub/api/users": users}
        self.answer(200, found[self.path.partition("?")[0]])

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.ordered.append((self.path, order))
        self.answer(self.status, {"token": "of-root"})

    def answer(self, status: int, found: Any) -> None:
        if self.headers["Authorization"] != "token secret":
            status = 403
        self.send_response(status)
        self.send_header("Location", "/user/root/moved")
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def do_DELETE(self) -> None:
        self.ended.append(self.path)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Rig:
    """A Hub, a machine's board, and the culler."""

    def __init__(self, url: str, hub: type[FakeHub], writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url, self.hub, self.writer, self.later = url, hub, writer, 0.0
        self.hook = arbiter(hub=url)
        monkeypatch.setenv("JUPYTERHUB_API_URL", f"{url}/hub/api")
        monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "secret")
        now = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: now() + self.later)

    def publish(self, *rows: Process, **more: Any) -> None:
        gpu = Gpu(index=0, uuid="GPU-0", **more)
        self.writer.publish(Snapshot(time=1e9, gpus=(gpu,), processes=rows, listed_at=1e9))

    def rounds(self, hours: float, *rows: Process, **more: Any) -> list[str]:
        """Have the culler come round every quarter of an hour, on one board; return which servers it has stopped."""
        for _ in range(int(hours * 60 / MINUTES) + 1):
            self.later += MINUTES * 60
            self.publish(*rows, **more)
            if asyncio.run(self.asked()):
                return self.cull()
        return self.cull()

    async def asked(self) -> bool:
        return await self.hook(inactive=None, inactive_limit=1e9, server={"url": "/user/root/"}, more=1)

    def cull(self) -> list[str]:
        asyncio.run(
            idle_culler.cull_idle(
                f"{self.url}/hub/api", "secret", 1_000_000, logging.getLogger("culler"), cull_arbiter=self.hook
            )
        )
        return self.hub.ended


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Rig]:
    monkeypatch.setattr(culler, "ANSWER_TIMEOUT", 60.0)
    monkeypatch.setattr(policy, "FILE", tmp_path / "tfgpu_magic.toml")
    policy.FILE.write_text('[idle]\nnotify = "2h"\nstop = "24h"\n')
    monkeypatch.setattr(pwd, "getpwnam", lambda _: type("User", (), {"pw_uid": os.getuid(), "pw_gid": 0}))
    kept = {"ended": [], "ordered": [], "at_servers": [], "gone": threading.Event()}
    hub = type("OneHub", (FakeHub,), kept)
    server = ThreadingHTTPServer(("127.0.0.1", 0), hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as run:
        Path(run).chmod(0o755)
        monkeypatch.setenv("TFGPU_SIMGPU", f"{run}/machine")
        Path(run, "machine.run").mkdir(mode=0o755)
        place = MachineDirectory()
        writer = Writer(place)
        yield Rig(f"http://127.0.0.1:{server.server_port}", hub, writer, monkeypatch)
        writer.close()
        place.close()
    server.shutdown()
    server.server_close()


def test_a_server_whose_memory_is_unused_for_the_hours_of_the_file_is_stopped(rig: Rig) -> None:
    assert rig.rounds(23, ROW) == []
    assert rig.rounds(2, ROW) == ["/hub/api/users/root/server"]


@pytest.mark.parametrize(
    "told",
    [
        TOLD | {"busy": True},
        TOLD | {"busy": None},
        TOLD | {"known": False},
        TOLD | {"notebooks": []},
        TOLD | {"notebooks": [ONE | {"told": 21 * HOUR}]},
        TOLD | {"notebooks": [ONE | {"told": None}]},
        TOLD | {"notebooks": [ONE, {"held": None, "told": None}]},
        ["a list"],
        None,
    ],
)
def test_one_that_is_at_work_has_told_nobody_or_does_not_answer_is_not(rig: Rig, told: object) -> None:
    rig.hub.told = told

    assert rig.rounds(30, ROW) == []


def test_a_server_gets_a_token_for_its_own_user_alone_and_nothing_before_its_hours(rig: Rig) -> None:
    """Who runs a server reads what is sent to it: the culler's own token opens everybody's."""
    assert rig.rounds(23, ROW) == []
    assert (rig.hub.ordered, rig.hub.at_servers) == ([], [])

    assert rig.rounds(2, ROW)
    assert set(rig.hub.at_servers) == {("/user/root/tfgpu-magic/idle?culler", "token of-root")}
    where, order = rig.hub.ordered[0]
    assert where == "/hub/api/users/root/tokens"
    assert order["scopes"] == ["access:servers!user=root"]
    assert order["expires_in"] <= 60
    assert order["note"].startswith("Server at ")  # the Hub counts no use of such a token as its user's activity


def test_no_redirect_is_followed(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.hub.asks = "/elsewhere"
    assert rig.rounds(25, ROW) == []
    assert {path for path, _ in rig.hub.at_servers} == {"/user/root/tfgpu-magic/idle?culler"}

    rig.hub.at_servers.clear()
    rig.hub.status = 302
    assert rig.rounds(1, ROW) == []
    assert rig.hub.at_servers == []
    assert "needs the scope tokens" in caplog.text


def test_one_that_answers_byte_by_byte_is_left_when_its_time_is_over(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.rounds(23, ROW)
    monkeypatch.setattr(culler, "ANSWER_TIMEOUT", 3.0)
    rig.hub.trickles = True

    assert rig.rounds(0.75, ROW) == []
    assert rig.hub.at_servers
    assert rig.hub.gone.wait(60)  # its connection is closed


@pytest.mark.parametrize(
    "rows",
    [
        (),
        (ROW._replace(unused=None),),
        (ROW, ROW._replace(pid=78, unused=None)),
        (ROW, ROW._replace(pid=78, uid=None)),
        (ROW._replace(held=None),),
        (ROW._replace(held=1),),
        (ROW._replace(uid=os.getuid() + 1),),
    ],
)
def test_nor_is_one_whose_user_uses_any_memory_or_of_whom_any_is_unknown(rig: Rig, rows: tuple[Process, ...]) -> None:
    assert rig.rounds(30, *rows) == []


def test_nor_is_any_while_a_gpu_cannot_be_read(rig: Rig) -> None:
    assert rig.rounds(30, ROW, listed=False) == []


def test_any_use_begins_anew_and_a_clock_that_is_set_is_no_time(rig: Rig) -> None:
    assert rig.rounds(23, ROW) == []
    assert rig.rounds(23, ROW._replace(unused=1.0)) == []  # as if it were unused for 50 years
    rig.later += 100 * HOUR  # no round for days
    assert rig.rounds(0, ROW._replace(unused=1.0)) == []


def test_what_the_culler_decides_by_itself_it_still_does(rig: Rig) -> None:
    policy.FILE.unlink()
    asyncio.run(
        idle_culler.cull_idle(f"{rig.url}/hub/api", "secret", 0, logging.getLogger("culler"), cull_arbiter=rig.hook)
    )

    assert rig.hub.ended == ["/hub/api/users/root/server"]


def test_the_culler_takes_it_from_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "culler.py").write_text(
        "from tfgpu_magic.lab.culler import arbiter\nc.IdleCuller.cull_arbiter_hook = arbiter()\n"
    )
    application = idle_culler.IdleCuller()
    application.load_config_file(str(tmp_path / "culler.py"))

    hook: Callable[..., Any] = application.cull_arbiter_hook
    assert hook.__module__ == "tfgpu_magic.lab.culler"
