"""A framework is a file and a line: its figures are in every view, and it is asked to give memory back if it can.

That its out-of-memory errors are known everywhere is in `test_shortage.py`.
"""

from __future__ import annotations

import datetime
import json
import sys
from types import SimpleNamespace
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
from tfgpu_magic.frameworks import registry
from tfgpu_magic.frameworks.pool import Pool
from tfgpu_magic.frameworks.tensorflow import arrays
from tfgpu_magic.ground.snapshot import Gpu
from tfgpu_magic.policy.fit import Device
from tfgpu_magic.policy.plan import FrameworkPlan
from tfgpu_magic.policy.process_state import Stage
from tfgpu_magic.tell import page_json


class Broken(Novum):
    """One whose figures cannot be had."""

    name = "Broken"

    def figures(self) -> dict[str, Any]:
        raise RuntimeError("a context of nobody's")


def test_a_new_framework_is_seen_in_text_html_the_message_and_the_panel() -> None:
    seen, state = run("1x8GiB", _register)
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
    monkeypatch.setattr("tfgpu_magic.frameworks.cuda.visible_gpus", lambda: ("GPU-1",))
    monkeypatch.setattr(registry, "FRAMEWORKS", (other, Novum()))

    assert [(uuid, {one.framework for one in its}) for uuid, its in registry.figures().items()] == [
        ("GPU-1", {"Novum"})
    ]


def _register() -> tuple[Seen, page_json.WireState]:
    registry.FRAMEWORKS = (*registry.FRAMEWORKS, Novum())
    shown = cells("%tf_gpu limit 1GiB", "import tensorflow as tf; kept = tf.zeros(2**20)", "%tf_gpu")[-1]
    return shown, page_json.state(tfgpu_magic.status().table)


class Giving(Novum):
    """One that gives back."""

    gives_back = True

    def give_back(self) -> dict[str, int]:
        return {"GPU-1": 3, "GPU-2": 1}


class Keeping(Novum):
    """One that could, and was not set up for it."""

    name = "Keeping"
    gives_back = False

    def give_back(self) -> dict[str, int]:
        raise AssertionError("it was asked")


@pytest.mark.parametrize(
    ("there", "gone"),
    [
        ([Giving(), Keeping(), Novum(), Giving(), Giving(Stage.LISTED)], 8),
        ([Giving(Stage.IMPORTED), Keeping(Stage.ABSENT)], 0),
    ],
)
def test_what_those_gave_that_use_a_gpu_is_told_in_one_sum(
    there: list[Novum], gone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "FRAMEWORKS", there)

    assert tfgpu_magic.give_back() == gone


def test_where_none_can_it_is_refused_and_they_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "FRAMEWORKS", (Giving(Stage.IMPORTED), Keeping(), Novum()))

    with pytest.raises(tfgpu_magic.Refused, match="Keeping and Novum keep the GPU memory that was taken until this"):
        tfgpu_magic.give_back()


def test_an_array_whose_address_cannot_be_read_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    other = datetime.datetime_CAPI  # a capsule of another name than DLPack's
    monkeypatch.setitem(sys.modules, "tensorflow.python.dlpack.dlpack", SimpleNamespace(to_dlpack=lambda _: other))

    assert arrays.address(object()) is None


@pytest.mark.parametrize(
    ("driver", "cuda"), [(15360, 14914), (24576, 24259), (40960, 40335), (23028, 22600), (81559, 81009)]
)
def test_a_fraction_of_what_cuda_counts_is_the_limit_that_was_asked(
    driver: int, cuda: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 2 * 2**30
    now = Pool("PyTorch", "cuda:0", "GPU-0", in_use=0, peak=0, limit=limit * cuda // driver)
    monkeypatch.setattr(registry, "pools", lambda: [now])

    gpu = Gpu(index=0, uuid="GPU-0")
    assert not registry.changed_limits([FrameworkPlan(framework="PyTorch", devices=(Device(gpu, (limit,)),))])
    assert registry.changed_limits([FrameworkPlan(framework="PyTorch", devices=(Device(gpu, (limit * 9 // 10,)),))])
