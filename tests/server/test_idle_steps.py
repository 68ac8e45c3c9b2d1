"""The administrator's idle steps in a real server: an idle notebook is told of, parked, shut down; no other one is."""

from __future__ import annotations

import json
import re
import urllib.error
from typing import TYPE_CHECKING, Any

import pytest

from tests.reports.test_nobody_ended import beside, subshell
from tests.server.acting import Kernel, leave_unused, post
from tests.sizes import GIB, LITTLE, MIB
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.jupyter import Server
    from tests.server.conftest import Serve
    from tfgpu_magic.simgpu import Machine

CONFIG = """
import json, pathlib
from tfgpu_magic import policy
from tfgpu_magic.lab import idle_actions
from tfgpu_magic.parking import other_notebooks
policy.FILE, other_notebooks.BEGIN_TIMEOUT = pathlib.Path({file!r}), 60.0
idle_actions.LOOK_EVERY, idle_actions.AT_WORK = 0.5, 1000.0  # a check stands for half a second
look = idle_actions.IdleSteps.check

async def look_then(self):
    if policy.FILE.with_name("begin").exists():
        await look(self)
        policy.FILE.with_name("known").write_text(json.dumps(self.read()))

idle_actions.IdleSteps.check = look_then
"""
"""The configuration of a server which looks once there is a past: a collector that runs before would write over it.

What it has found it writes into a file, too, since a page that asks has told the owner.
"""
FILE = '[idle]\nnotify = "1s"\npark = "2s"\nstop = "{stop}"\n'


def holding(server: Server, path: str, *, setup: str = "") -> Kernel:
    """Return a notebook that holds memory of the first GPU."""
    kernel = Kernel(server, path)
    kernel.run(f"{setup}\nfrom tests.simgpu.on_machine import allocate; allocate({GIB})")
    return kernel


def serving(serve: Serve, folder: Path, stop: str) -> Server:
    file = folder / "tfgpu_magic.toml"
    file.write_text(FILE.format(stop=stop))
    return serve(config=CONFIG.format(file=str(file)))


def long_unused(machine: Machine, server: Server, folder: Path, *notebooks: Kernel) -> None:
    """Leave an hour of each without use in the board, and have the server look."""
    leave_unused(machine, server, [(0, one.pid) for one in notebooks], 3600)
    (folder / "begin").touch()


def told(server: Server, kernel: str) -> dict[str, Any]:
    with server.open("tfgpu-magic/idle") as answer:
        return of_kernel(answer.read(), kernel)


def of_kernel(known: str | bytes, kernel: str) -> dict[str, Any]:
    return next((one for one in json.loads(known)["notebooks"] if one["kernel"] == kernel), {})


def kernels(server: Server) -> set[str]:
    return {kernel["id"] for kernel in server.call("kernels")}


def test_an_idle_notebook_is_told_of_and_shut_down_and_one_in_use_is_not(
    serve: Serve, machine: Machine, tmp_path: Path
) -> None:
    server = serving(serve, tmp_path, "4s")
    idle, busy, beside_it = (holding(server, f"{name}.ipynb") for name in ("idle", "busy", "beside_it"))
    looked_at = holding(server, "looked_at.ipynb", setup="%load_ext tfgpu_magic")
    for one in (busy, beside_it, looked_at):
        one.client.execute("import time; time.sleep(3600)")
        until(lambda: server.call(f"kernels/{one.kernel}")["execution_state"] == "busy")  # noqa: B023  # it is over
    for one in (beside_it, looked_at):
        beside(one.client, subshell(one.client), "1 + 1")
        until(lambda: server.call(f"kernels/{one.kernel}")["execution_state"] == "idle")  # noqa: B023  # for its server
    long_unused(machine, server, tmp_path, idle, busy, beside_it, looked_at)

    def found() -> dict[str, Any]:
        return of_kernel((tmp_path / "known").read_text(), idle.kernel)

    longer = until(found, lambda one: one.get("idle", 0.0) > 6.0, despite=(OSError, ValueError))  # than to `stop`
    assert longer["told"] is None  # no page was there to tell its owner
    assert told(server, idle.kernel)["told"] == 0.0
    until(lambda: "it was shut down" in server.log.read_text())
    assert kernels(server) == {busy.kernel, beside_it.kernel, looked_at.kernel}
    assert [told(server, one.kernel)["idle"] for one in (busy, beside_it, looked_at)] == [0.0, 0.0, 0.0]
    log = server.log.read_text()
    told_once = r"without use since 0 min\. Once a page in sight has told its owner, it will be shut down"
    assert re.search(rf"idle\.ipynb holds \S+ GiB of GPU memory {told_once}", log)
    assert "busy.ipynb holds" not in log
    for one in (busy, beside_it, looked_at):
        one.client.stop_channels()


TRAINED = """
%load_ext tfgpu_magic
%tf_gpu visible 0; growth --release
import numpy as np, tensorflow as tf
kept = np.random.default_rng(3).integers(1, 99, 2**27).astype("float32")
variable = tf.Variable(kept)
"""
"""What has 512 MiB that can leave the GPU."""


def test_one_that_can_be_parked_is_parked_and_not_shut_down(serve: Serve, machine: Machine, tmp_path: Path) -> None:
    server = serving(serve, tmp_path, "30s")  # the GPUs' figures may be some seconds old
    notebook = Kernel(server, "train.ipynb")
    notebook.run(TRAINED)
    long_unused(machine, server, tmp_path, notebook)

    until(lambda: told(server, notebook.kernel), lambda one: one.get("told") is not None)
    until(lambda: "it was parked, by the administrator's file" in server.log.read_text())
    assert machine.held(pid=notebook.pid) in LITTLE
    seen = until(lambda: told(server, notebook.kernel), lambda one: one.get("held") == 0)
    assert (seen["idle"], seen["told"]) == (0.0, None)
    assert "was shut down" not in server.log.read_text()
    same = notebook.run("print(variable.numpy().tobytes() == kept.tobytes())")
    assert same.endswith("True\n"), same  # below what is shown of a long return
    assert machine.held(pid=notebook.pid) > 512 * MIB
    notebook.end()


def test_an_owner_puts_all_steps_off_for_a_day_once(serve: Serve, machine: Machine, tmp_path: Path) -> None:
    server = serving(serve, tmp_path, "1h")
    notebook = holding(server, "train.ipynb")
    long_unused(machine, server, tmp_path, notebook)

    def put_off() -> int:
        return post(server, "idle", {"kernel": notebook.kernel, "pid": notebook.pid})[0]

    until(lambda: told(server, notebook.kernel), lambda one: one.get("told") is not None)
    until(put_off, lambda status: status == 204)  # its owner was told
    assert put_off() == 404
    assert told(server, notebook.kernel)["due"]["stop"] > 24 * 3600
    assert kernels(server) == {notebook.kernel}
    notebook.end()


def test_without_the_administrators_file_there_is_nothing_of_it(server: Server) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        server.open("tfgpu-magic/idle")
