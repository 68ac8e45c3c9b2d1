"""The server's kernels as its managers tell of them: those of any make, asked rarely, and within bounds."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from jupyter_client.session import Session
from jupyter_events import EventLogger
from jupyter_server import DEFAULT_EVENTS_SCHEMA_PATH

from tfgpu_magic.ground.rows import Notebook
from tfgpu_magic.server.kernels import Kernels

KNOWN = "0123abcd-and-more"


def manager(**kernels: Any) -> Any:
    return SimpleNamespace(list_kernel_ids=lambda: list(kernels), get_kernel=kernels.__getitem__)


def local(process: object = manager) -> Any:
    """Return a kernel of pid 7 that this server started, with its process or without."""
    provisioner: Any = LocalProvisioner()
    provisioner.pid, provisioner.process = 7, process
    return SimpleNamespace(
        provisioner=provisioner, kernel_name="python3", session=Session(key=b"key"), connect_iopub=Mock()
    )


def noted(kernel: Any, *sessions: dict[str, Any]) -> Notebook:
    """Return what is known of a kernel, whose sessions these are."""
    listed = [{"kernel": {"id": KNOWN}, **session} for session in sessions]
    kernels = Kernels(manager(**{KNOWN: kernel}), SimpleNamespace(list_sessions=lambda: listed), Mock())
    (found,) = asyncio.run(kernels.notebooks()).values()
    return found


def test_kernels_that_run_elsewhere_have_no_pid_and_their_gateway_is_not_asked() -> None:
    async def listed() -> list[object]:
        raise AssertionError("asked over the network")

    remote = SimpleNamespace(provisioner=SimpleNamespace(pid=1))
    kernels = Kernels(manager(a=remote, b=SimpleNamespace()), SimpleNamespace(list_sessions=listed), Mock())

    found = asyncio.run(kernels.notebooks())
    assert {pid: notebook.kernel for pid, notebook in found.items()} == {-1: "a", -2: "b"}


def test_sessions_are_listed_again_for_a_new_kernel_and_else_rarely() -> None:
    count = 0

    def listed() -> list[dict[str, Any]]:
        nonlocal count
        count += 1
        return [{"kernel": {"id": "a"}, "type": "notebook", "path": "RTC:abc", "name": "train.ipynb"}]

    kernel = local()
    known = {"a": kernel}
    kernels = Kernels(manager(**known), SimpleNamespace(list_sessions=listed), Mock())

    async def run() -> dict[int, Notebook]:
        for _ in range(5):
            found = await kernels.notebooks()
        kernels._kernels = manager(a=kernel, b=SimpleNamespace(provisioner=LocalProvisioner()), c=kernel)
        await kernels.notebooks()
        return found

    assert asyncio.run(run()) == {7: Notebook(name="train.ipynb", path="RTC:abc", kernel="a")}
    assert count == 2


def test_a_kernel_that_has_died_names_nobody_who_is_given_its_pid() -> None:
    died = local(process=None)  # as Jupyter leaves a kernel that it does not start again

    assert asyncio.run(Kernels(manager(a=died), SimpleNamespace(list_sessions=list), Mock()).notebooks()) == {}


def test_nothing_is_left_once_the_server_is_done_with_its_kernels() -> None:
    kernel, events = local(), EventLogger()
    events.register_event_schema(DEFAULT_EVENTS_SCHEMA_PATH / "kernel_actions" / "v1.yaml")
    kernels = Kernels(manager(a=kernel), SimpleNamespace(list_sessions=list), events)
    asyncio.run(kernels.notebooks())
    kernels.close()

    kernel.connect_iopub.return_value.close.assert_called_once()
    assert not any(events._modified_listeners.values())


def test_what_a_client_with_the_kernels_session_has_read_is_heard_all_the_same() -> None:
    kernel, sender = local(), Session(key=b"key")
    told = sender.serialize(sender.msg("status", {"execution_state": "busy"}, sender.msg("execute_request")))
    kernels = Kernels(manager(a=kernel), SimpleNamespace(list_sessions=list), Mock())
    asyncio.run(kernels.notebooks())
    (hear,) = kernel.connect_iopub.return_value.on_recv.call_args.args
    kernel.session.deserialize(kernel.session.feed_identities(told)[1])
    hear(told)

    assert asyncio.run(kernels.notebooks())[7].state == "busy"


@pytest.mark.parametrize(
    ("session", "state", "notebook"),
    [
        ({"path": 7, "name": {"a": 1}, "type": "notebook"}, "idle", ("{'a': 1}", "7", "idle")),
        ({"path": "x" * 10**6, "type": "notebook"}, "x" * 10**6, ("x" * 10_000, "", "")),
        ({"path": "a/b.ipynb", "name": "old.ipynb", "type": "notebook"}, "<b>", ("", "a/b.ipynb", "")),
        ({}, None, ("R 0123abcd", "", "")),
    ],
)
def test_what_kernels_and_those_who_start_them_say_has_bounds(
    session: dict[str, Any], state: str | None, notebook: tuple[str, str, str]
) -> None:
    kernel = local()
    kernel.kernel_name, kernel.execution_state = "R", state
    found = noted(kernel, *([session] if session else []))

    assert (found.name, found.path, found.state) == notebook


def test_a_kernel_of_several_is_named_by_its_oldest_notebook_and_the_others_are_told() -> None:
    found = noted(
        local(),
        {"type": "console", "path": "console-1-1f0e", "name": "Console 1"},
        {"type": "notebook", "path": "work/train.ipynb", "name": "train.ipynb"},
        {"type": "notebook", "path": "scratch.ipynb", "name": "scratch.ipynb"},
    )

    assert (found.path, found.also) == ("work/train.ipynb", ("scratch.ipynb", "Console 1"))
