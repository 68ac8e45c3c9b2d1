"""A framework is a file and a line: its figures are in every view, and its out-of-memory errors known everywhere."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import sync_playwright

import tfgpu_magic
from tests.browser.panel import show
from tests.browser.scene import chromium
from tests.frameworks.novum import Novum
from tests.magic.shell import Seen, cells
from tests.processes import run
from tfgpu_magic import frameworks
from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.config.runtime import RUNTIME
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.views import message


class Broken(Novum):
    """One whose figures cannot be had."""

    name = "Broken"

    def figures(self) -> dict[str, Any]:
        raise RuntimeError("a context of nobody's")


def test_a_new_framework_is_seen_in_text_html_the_message_and_the_panel() -> None:
    with Machine.create("1x8GiB") as machine:
        seen, state = run(machine, _register)
    with sync_playwright() as playwright, chromium(playwright) as browser:
        page = show(browser.new_page(), f"sketch&told={quote(json.dumps(state))}")

    (row,) = (row for row in state["rows"].values() if row["who"] == "this")
    assert row["figures"]["Novum"] == {"pooled": 768 * 2**20, "live": 0}
    assert list(row["figures"]) == ["TensorFlow", "Novum"]
    assert "Novum pooled 0.8  live 0.0 GiB" in seen.value
    assert "Novum pooled 0.8  live 0.0 GiB" in seen.html
    assert "Novum pooled 0.8 live 0.0" in page


@pytest.mark.parametrize("other", [Novum(Stage.IMPORTED), Broken()])
def test_one_that_sleeps_or_fails_says_nothing_and_costs_the_others_nothing(
    other: Novum, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfgpu_magic.config.cuda.shown", lambda: ("GPU-1",))
    monkeypatch.setattr(frameworks, "FRAMEWORKS", (other, Novum()))

    assert [(uuid, {one.framework for one in its}) for uuid, its in frameworks.figures().items()] == [
        ("GPU-1", {"Novum"})
    ]


@pytest.mark.parametrize(
    ("said", "full"),
    [
        ("OOM when allocating tensor with shape[1024,1024]", True),
        ("CUDA_ERROR_OUT_OF_MEMORY", True),
        ("failed call to cuInit: Status: out of memory", True),
        ("CUDA out of memory. Tried to allocate 2.00 GiB.", True),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 256.00MiB.", True),
        ("RESOURCE_EXHAUSTED: Failed to allocate request for 2.00GiB (2147483648B) on device ordinal 0", True),
        ("RESOURCE_EXHAUSTED: quota exceeded", False),
        ("There is no room for 3 GiB of memory", False),
        ("zoom must be positive", False),
    ],
)
def test_what_says_that_a_gpu_has_no_memory_left(said: str, full: bool) -> None:
    assert frameworks.out_of_memory(RuntimeError(said)) == full


def test_a_new_framework_runs_out_of_memory_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    before = frameworks.out_of_memory(MemoryError("Novum is full"))
    monkeypatch.setattr(frameworks, "FRAMEWORKS", (*frameworks.FRAMEWORKS, Novum()))

    assert (before, frameworks.out_of_memory(MemoryError("Novum is full"))) == (False, True)


def test_a_policy_can_be_asked_of_each() -> None:
    assert [one.name for one in frameworks.FRAMEWORKS if one.runtime is RUNTIME] == ["TensorFlow"]


def _register() -> tuple[Seen, message.State]:
    frameworks.FRAMEWORKS = (*frameworks.FRAMEWORKS, Novum())
    shown = cells("%tf_gpu limit 1GiB", "import tensorflow as tf; kept = tf.zeros(2**20)", "%tf_gpu")[-1]
    return shown, message.state(tfgpu_magic.status().table)
