"""What is promised to those who share a Hub, and how it is tried. A check returns what is wrong, or nothing."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Callable
from functools import partial

import psutil

from scripts._hub_rig import CEILING, IDLE, Hub
from scripts._hub_users import User
from tests.jupyter import until


def closed_to_others(hub: Hub) -> str:
    """Snapshot and stream are the user's own: 403 for another user's token, and for none."""
    ann, bob = hub.users["ann"], hub.users["bob"]
    wrong = []
    for path, good in (("tfgpu-magic/snapshot", 200), ("tfgpu-magic/stream", 101)):
        for whose, token, status in (("her own", ann.token, good), ("bob's", bob.token, 403), ("no", "", 403)):
            answer = hub.ask(f"/user/{ann.name}/{path}", token, stream=path.endswith("stream"))
            if answer.status != status:
                wrong.append(f"{path} with {whose} token is {answer.status}")
    return "; ".join(wrong)


def boards_are_private(hub: Hub) -> str:
    """A user's board can be entered and read by nobody else: 0700, and its files 0600."""
    for user in (hub.users["ann"], hub.users["bob"]):
        _within(30, partial(_gpus, hub, user))
        boards = [user.board, *user.home.rglob("tfgpu_magic*/board*")]
        files = [path for board in boards if board.exists() for path in (board, *board.rglob("*"))]
        if not any(path.is_file() for path in files):
            return f"{user.name} has no board"
        for path in files:
            found = path.stat()
            mode = stat.S_IMODE(found.st_mode)
            if found.st_uid != user.uid or mode != (0o700 if path.is_dir() else 0o600):
                return f"{path} is of user {found.st_uid}, mode {mode:o}"
    return ""


def squatting_is_harmless(hub: Hub) -> str:
    """Who makes another user's folder in /tmp first does not switch that user's panel off."""
    dee = hub.users["dee"]
    if dee.board.stat().st_uid != hub.users["bob"].uid:
        return "bob could not make dee's folder, and nothing was tried"
    return "" if _within(20, lambda: _gpus(hub, dee)) else f"dee's panel says {_snapshot(hub, dee)[:250]}"


def paths_are_private(hub: Hub) -> str:
    """What a user has in sys.path is seen by no other user in the list of processes, while cells are isolated."""
    ann, bob = hub.users["ann"], hub.users["bob"]
    kernel = hub.start_kernel(ann)
    kernel.run("import sys; sys.path.append('/home/ann/of-a-secret-client')")
    kernel.run("%%tf_gpu isolate --detach\nimport time; time.sleep(15)")
    until(lambda: len(psutil.Process(kernel.pid).children(recursive=True)) > 0)
    seen = ""
    for _ in range(30):
        seen += _all_that_is_seen_by(bob)
        time.sleep(0.1)
    hub.shut_down(kernel)
    if str(kernel.id) not in seen:
        return "bob did not see ann's kernel, and nothing was tried"
    return "" if "of-a-secret-client" not in seen else "bob sees it"


def restart_keeps_the_token(hub: Hub) -> str:
    """`--restart` applies its words in the new kernel, with the Hub's token, which nobody else sees."""
    ann, bob = hub.users["ann"], hub.users["bob"]
    kernel = hub.start_kernel(ann)
    before = kernel.pid
    environment = psutil.Process(before).environ()
    tokens = {environment[name] for name in ("JUPYTERHUB_API_TOKEN", "JPY_API_TOKEN") if name in environment}
    said = kernel.run("import tensorflow as tf; tf.zeros(1) + 1\n%tf_gpu limit 1GiB --restart")
    seen: list[str] = []

    def restarted() -> bool:
        seen.append(_all_that_is_seen_by(bob))
        return kernel.pid not in (0, before)

    if not _within(60, restarted):
        return f"the kernel was not restarted: {said[-300:]}"
    kernel.connect()
    now = kernel.run("%tf_gpu")
    hub.shut_down(kernel)
    if not tokens or any(token in text for token in tokens for text in seen):
        return "bob sees the token" if tokens else "the kernel has no token of the Hub's"
    return "" if "limit 1GiB" in now else f"the words are not in force: {now[:300]}"


def ceiling_holds(hub: Hub) -> str:
    """The ceiling of `c.Spawner.environment` holds in users' kernels."""
    kernel = hub.start_kernel(hub.users["bob"])
    said = kernel.run("%load_ext tfgpu_magic\n%tf_gpu plan")
    hub.shut_down(kernel)
    return "" if f"The ceiling here is `{CEILING}`" in said else f"bob's kernel says {said[:300]}"


def leave(hub: Hub) -> None:
    """Let cy go home with `top` shown, and dee with a job that runs."""
    for name, code in (("cy", "%tf_gpu top"), ("dee", "%%tf_gpu isolate --detach\nimport time; time.sleep(900)")):
        hub.left[name] = hub.start_kernel(hub.users[name])
        hub.left[name].run(code)
        hub.left[name].close()


def idle_is_culled(hub: Hub) -> str:
    """Who shows `%tf_gpu top` and has no page is idle: the kernel is culled, and then the server, by the Hub."""
    cy = hub.users["cy"]
    if _within(60 + 4 * IDLE, lambda: not hub.server(cy)):
        return ""
    kernel = "kernel runs" if hub.left["cy"].pid else "kernel was culled"
    return f"the server runs, last active {hub.server(cy).get('last_activity')}; the {kernel}"


def working_is_not_culled(hub: Hub) -> str:
    """Who has a detached job running is not idle: when others are culled, its kernel and its server stay."""
    if not hub.server(hub.users["dee"]):
        return "the server was culled"
    pid = hub.left["dee"].pid
    if not pid:
        return "the kernel was culled"
    return "" if psutil.Process(pid).children(recursive=True) else "the job is gone"


def _within(seconds: float, ask: Callable[[], object]) -> bool:
    try:
        return bool(until(ask, seconds=seconds))
    except TimeoutError:
        return False


def _snapshot(hub: Hub, user: User) -> str:
    return hub.ask(f"/user/{user.name}/tfgpu-magic/snapshot", user.token).text


def _gpus(hub: Hub, user: User) -> int:
    return len(json.loads(_snapshot(hub, user)).get("state", {}).get("gpus", {}))


def _all_that_is_seen_by(user: User) -> str:
    """What a user can read of all processes."""
    return user.run("sh", "-c", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' ' '; true")
