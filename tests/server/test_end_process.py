"""What the panel's end does: one process of the user's own that no kernel of this server is ends, and no other."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import urllib.error
from typing import TYPE_CHECKING
from urllib.request import HTTPCookieProcessor, Request, build_opener

import psutil
import pytest

from tests.jupyter import Server
from tests.lab.users import root_only
from tests.processes import among_own_pids, choose_pid
from tests.server.acting import Kernel, post, row_of
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.machine.owners.pids import start_time
from tfgpu_magic.server import actions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfgpu_magic.simgpu import Machine

HOLDS = "from tests.simgpu.on_machine import allocate; allocate(2**28)"
SCRIPT = f"{HOLDS}; print('ready', flush=True); import time; time.sleep(600)"
DRAWS = "import os, time; f = open(os.environ['TFGPU_SIMGPU']); print('ready', flush=True); time.sleep(600)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SCRIPT}"


def script(machine: Machine, code: str = SCRIPT) -> subprocess.Popen[str]:
    """Start a program that holds memory."""
    process = machine.popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.fixture
def orphan(machine: Machine) -> Iterator[subprocess.Popen[str]]:
    process = script(machine)
    yield process
    process.kill()
    process.communicate()


def end(server: Server, body: object, **options: object) -> int:
    return post(server, "end", body, **options)[0]


def test_a_script_is_asked_to_end_and_ends(server: Server, orphan: subprocess.Popen[str]) -> None:
    row = row_of(server, lambda row: row.get("pid") == orphan.pid)

    assert (row["who"], "kernel" in row, row["began"]) == ("mine", False, start_time(orphan.pid))
    for off, kill in itertools.product((-1, 1), (False, True)):
        assert end(server, {"pid": orphan.pid, "began": row["began"] + off, "kill": kill}) == 404
    assert orphan.poll() is None  # one that began at another time is another
    assert end(server, {"pid": orphan.pid, "began": row["began"]}) == 204
    assert orphan.wait(30 * SLACK) == -15


def test_one_that_does_not_end_is_killed_when_that_is_asked(server: Server, machine: Machine) -> None:
    process = script(machine, DEAF)
    asked = {"pid": process.pid, "began": row_of(server, lambda row: row.get("pid") == process.pid)["began"]}

    assert end(server, asked) == 204
    assert process.poll() is None
    assert end(server, asked | {"kill": True}) == 204
    assert process.wait(30 * SLACK) == -9
    process.communicate()


def test_a_desktop_that_draws_on_the_gpu_is_not_ended(server: Server, machine: Machine) -> None:
    process = script(machine, DRAWS)
    with machine.add_row(process.pid, 0, "256MiB", "G"):
        row = row_of(server, lambda row: row.get("pid") == process.pid)
        answer = end(server, {"pid": process.pid, "began": row["began"]})

    assert (row["who"], row["kind"], answer, process.poll()) == ("mine", "G", 404, None)
    process.kill()
    process.communicate()


@pytest.fixture(params=[True, False], ids=["descriptors", "no descriptors"])
def ends(machine: Machine, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Callable[..., int]:
    """The function that ends a process of the machine; also as in a Python that was built for an older Linux."""
    monkeypatch.setenv("TFGPU_SIMGPU", str(machine.path))
    if not request.param:
        monkeypatch.delattr(os, "pidfd_open")
    return actions.end


@root_only
def test_a_pid_that_another_process_gets_after_the_last_look_ends_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, ends: Callable[..., int]
) -> None:
    def scene() -> None:
        first = script(machine)
        start, later = start_time(first.pid), list[subprocess.Popen[str]]()
        assert start

        def slow(_: int) -> tuple[int, ...]:
            first.kill()
            first.communicate()
            choose_pid(first.pid)
            later.append(script(machine))
            return (first.pid,)

        monkeypatch.setattr(actions, "ancestors", slow)  # the last that is read of it
        answer = ends(first.pid, start, signal.SIGKILL, {})
        (second,) = later

        assert (answer, second.pid, second.poll()) == (404, first.pid, None)

    among_own_pids(scene)


def test_a_process_is_ended_and_not_one_that_began_later(
    orphan: subprocess.Popen[str], ends: Callable[..., int]
) -> None:
    start = start_time(orphan.pid)
    assert start

    assert ends(orphan.pid, start + 1, signal.SIGTERM, {}) == 404
    assert ends(orphan.pid, start, signal.SIGTERM, {}) == 204
    assert orphan.wait(30 * SLACK) == -15


def test_what_has_ended_and_what_holds_no_gpu_is_not_there(server: Server) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        start = start_time(child.pid)
        no_gpu = end(server, {"pid": child.pid, "began": start})
        lives = child.poll() is None
        child.communicate(b"\n")

    assert (no_gpu, lives) == (404, True)
    assert end(server, {"pid": child.pid, "began": start}) == 404


def test_kernels_their_children_and_the_server_itself_are_never_ended(server: Server) -> None:
    with Kernel(server, "train.ipynb") as kernel:
        kernel.run(HOLDS)
        child = int(
            kernel.run(
                f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {SCRIPT!r}], stdout=-1); "
                "p.stdout.readline(); print(p.pid)",
            )
        )
        pids = (kernel.pid, child, server.process.pid, os.getpid())
        found = [end(server, {"pid": one, "began": start_time(one)}) for one in pids]

        assert found[:2] == [403, 403]
        assert set(found[2:]) <= {403, 404}  # they hold no GPU
        assert all(map(psutil.pid_exists, pids))
        until(lambda: row_of(server, lambda row: row.get("pid") == kernel.pid).get("kernel"))
        assert "began" not in row_of(server, lambda row: row.get("pid") == kernel.pid)


def test_another_site_cannot_have_the_users_browser_do_it(server: Server, orphan: subprocess.Popen[str]) -> None:
    browser = build_opener(HTTPCookieProcessor())
    token = {"Authorization": f"token {server.token}"}
    browser.open(Request(f"http://{server.base}api/status", headers=token), timeout=240).close()  # it is logged in
    with browser.open(f"http://{server.base}api/status", timeout=240) as answer:
        assert answer.status == 200
    body = json.dumps({"pid": orphan.pid, "began": start_time(orphan.pid)}).encode()
    with pytest.raises(urllib.error.HTTPError, match="403") as refused:
        browser.open(Request(f"http://{server.base}tfgpu-magic/end", data=body), timeout=240)

    assert "_xsrf" in refused.value.read().decode()
    assert orphan.poll() is None
