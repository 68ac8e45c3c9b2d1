"""A policy that is configured holds when the extension is loaded, and the extension can be loaded again."""

from __future__ import annotations

import grp
import os
import sys
from typing import Any
from unittest import mock

import pytest

from tests.magic.cells import NOT, Cells, in_a_process
from tests.magic.shell import Seen, cells, configured
from tests.processes import QUIET, run
from tfgpu_magic.machine import collector_start
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.policy.settings import removed
from tfgpu_magic.simgpu import Machine

MINE = grp.getgrgid(os.getgid()).gr_name
OTHERS = next(one.gr_name for one in grp.getgrall() if one.gr_gid not in {os.getgid(), *os.getgroups()})


@pytest.mark.parametrize(
    ("env", "settings", "plan"),
    [
        ({"TFGPU_POLICY": "limit 1GiB"}, {}, "`limit 1GiB` is in force"),
        ({"TFGPU_POLICY": "limit 1GiB"}, {"policy": "growth"}, "`limit 1GiB` is in force"),
        ({"TFGPU_POLICY": "limit 1GiB"}, {"policies": {MINE: "limit 25%"}}, "`limit 1GiB` is in force"),
        ({"TFGPU_POLICY": ""}, {"policy": "growth"}, "No policy is set"),
        # Of policies by group, that of the first one that the user is in.
        ({}, {"policies": {OTHERS: "limit 10%", MINE: "limit 25%"}, "policy": "growth"}, "`limit 25%` is in force"),
        ({}, {"policies": {MINE: "limit 25%", OTHERS: "limit 10%"}, "policy": "growth"}, "`limit 25%` is in force"),
        ({}, {"policies": {OTHERS: "limit 10%"}, "policy": "growth"}, "`growth` is in force"),
    ],
)
def test_an_administrators_policy_holds_when_the_extension_is_loaded_and_nothing_is_said_of_it(
    env: dict[str, str], settings: dict[str, Any], plan: str
) -> None:
    loaded, planned = run("1x8GiB", configured, settings, "%tf_gpu plan", env=env)

    assert loaded.text == ""
    assert planned.value.startswith(plan)


def test_a_policy_of_a_group_that_is_misspelt_is_told_with_its_group() -> None:
    (loaded,) = run("1x8GiB", configured, {"policies": {MINE: "limti 25%"}})

    assert f"`limti 25%`, from the configuration for the group {MINE}, is NOT in force" in loaded.text


@pytest.mark.parametrize(("first", "then"), [("limit 2GiB", {1}), ("help", {0, 1})])  # what it has read is still new
def test_each_policy_has_one_look_of_its_own_whatever_the_first_line_was(first: str, then: set[int]) -> None:
    begun, after = run("1x8GiB", _probes, f"%tf_gpu {first}", "%tf_gpu limit 1GiB", fresh=True)

    assert begun == 1
    assert after in then


def test_a_first_policy_imports_nothing_that_only_other_frameworks_a_ceiling_or_a_refusal_need() -> None:
    code = "from tfgpu_magic.notebook.words import line; line.run('limit 2GiB'); import sys; print(*sys.modules)"
    with Machine.create("1x8GiB") as machine:
        done = machine.run([sys.executable, "-c", code], env=QUIET, capture_output=True, text=True)
    rooms = {"engine.every_framework", "engine.offers", "frameworks.registry", "isolate.leasing"}
    rooms |= {"policy.ceiling"}
    imported = set(done.stdout.split())

    assert done.returncode == 0, done.stderr
    assert "tfgpu_magic.policy.plan" in imported
    assert not imported & {"secrets", "psutil", "tensorflow", *(f"tfgpu_magic.{room}" for room in rooms)}


WAITS = "%tf_gpu plan", "`limit 1GiB` takes effect when TensorFlow is imported"
CONFIGURED = "%config TfGpuMagics.policy = 'limit 1GiB'"


@pytest.mark.smoke
@pytest.mark.parametrize(
    "cells",
    [
        Cells("%tf_gpu limit 1GiB", "%reload_ext tfgpu_magic", WAITS, env={"TFGPU_POLICY": "growth"}),
        Cells(CONFIGURED, WAITS),
        Cells("%reload_ext tfgpu_magic", CONFIGURED, WAITS),
        Cells(("%config TfGpuMagics.policy = 'limti 1GiB'", "'limti' is not a command of", NOT + "Traceback")),
    ],
    ids=["to load it again leaves what was said", "a cell configures", "also when it is loaded again", "and is wrong"],
)
def test_what_was_said_or_configured_in_a_cell_counts(cells: Cells) -> None:
    cells.play(in_a_process("1x8GiB"))


def test_the_extension_can_be_unloaded_and_loaded_again() -> None:
    gone, back, transformers = run("1x8GiB", _unload_and_load)

    assert "not found" in gone.text
    assert back.error == ""
    assert transformers[0] == transformers[2] == transformers[1] + 1


@pytest.mark.parametrize("name", ["parking", "parking_on_open_module", "parking_memory", "parking_disk"])
def test_a_setting_that_was_removed_is_refused_in_the_cell_that_sets_it(name: str) -> None:
    refused, other = run("1x8GiB", cells, f"%config TfGpuMagics.{name} = 'ask'", "%config TfGpuMagics.why = False")

    assert refused.text == f"UsageError: {removed(name, '`%config`')}\n"
    assert other.text == ""  # nothing of it stays


def _unload_and_load() -> tuple[Seen, Seen, list[int]]:
    from IPython.core.interactiveshell import InteractiveShell

    transformers, counts = InteractiveShell.instance().input_transformers_cleanup, []
    found: list[Seen] = []
    for line in ("%tf_gpu plan", "%unload_ext tfgpu_magic", "%load_ext tfgpu_magic"):
        found.append(cells(line, "%tf_gpu plan")[1])
        counts.append(len(transformers))
    return found[1], found[2], counts


def _probes(*sources: str) -> list[int]:
    """Count the processes that each of these cells starts to look at the GPUs."""
    started: list[BoardDirectory | None] = []
    begin = collector_start.start

    def start(place: BoardDirectory | None) -> collector_start.Start:
        started.append(place)
        return begin(place)

    counts: list[int] = []
    with mock.patch.object(collector_start, "start", start):
        for source in sources:
            before = len(started)
            cells(source)
            counts.append(len(started) - before)
    return counts
