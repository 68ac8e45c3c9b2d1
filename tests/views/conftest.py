"""A kernel as a front end hears it."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from tests.slack import SLACK
from tfgpu_magic.simgpu import Machine


class Kernel:
    """A kernel, and what it has said to the front end so far."""

    def __init__(self, client: BlockingKernelClient) -> None:
        self._client = client
        self.heard: list[Any] = []

    def start(self, source: str) -> None:
        self._client.execute(source)

    def run(self, source: str) -> None:
        """Run a cell to its end; an error in it is the test's."""
        asked = self._client.execute(source)
        for said in self._listen(60 * SLACK):
            if said["parent_header"].get("msg_id") == asked:
                assert said["msg_type"] != "error", "\n".join(said["content"]["traceback"])
                if said["content"].get("execution_state") == "idle":
                    return
        raise AssertionError("the cell did not end")

    def until(self, promise: Callable[[dict[str, Any]], object], seconds: float = 15) -> dict[str, Any]:
        """Return the first state that keeps a promise, of those that are sent from now on."""
        for said in self._listen(seconds * SLACK):
            state = said["content"].get("data", {}).get("state", {}).get("state") if _of_a_comm(said) else None
            if state and promise(state):
                return dict(state)
        raise AssertionError(f"no such state within {seconds * SLACK:g} s")

    def rest(self, seconds: float) -> None:
        """Hear what is said in a time."""
        for _ in self._listen(seconds):
            pass

    def states(self) -> list[Any]:
        """Return what was sent of tables so far."""
        sent = [said["content"]["data"].get("state", {}) for said in self.heard if said["msg_type"] == "comm_msg"]
        return [state for state in sent if "state" in state]

    def send(self, comm: str, content: dict[str, Any]) -> None:
        """Send a custom message to a widget."""
        self.message(comm, {"method": "custom", "content": content})

    def message(self, comm: str, data: dict[str, Any]) -> None:
        """Send a message of any kind to a widget."""
        data = {"comm_id": comm, "data": data}
        self._client.shell_channel.send(self._client.session.msg("comm_msg", data))

    def models(self) -> list[Any]:
        """Return the widgets opened so far that are tables."""
        opened = [said["content"] for said in self.heard if said["msg_type"] == "comm_open"]
        return [one for one in opened if "history" in one["data"]["state"]]

    def displayed(self) -> list[Any]:
        return [said["content"]["data"] for said in self.heard if said["msg_type"] == "display_data"]

    def _listen(self, seconds: float) -> Iterator[Any]:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                said = self._client.get_iopub_msg(timeout=left)
            except queue.Empty:
                return
            self.heard.append(said)
            yield said


def _of_a_comm(said: Any) -> bool:
    return said["msg_type"] in ("comm_open", "comm_msg")


@pytest.fixture
def here(machine: Machine) -> Iterator[Kernel]:
    """A kernel on the machine of a file's tests, which has loaded the extension."""
    manager, client = start_new_kernel(env=machine.environ(), extra_arguments=["--log-level=50"])
    try:
        made = Kernel(client)
        made.run("%load_ext tfgpu_magic")
        yield made
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
