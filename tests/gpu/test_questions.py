"""What only a real GPU answers, and each answer written down: ``scripts/test -m gpu tests/gpu/test_questions.py``.

What the driver cannot do is an answer; a test fails if something was harmed, or if our checks miss what they are there
for. docs/seen.md says where the answers go.
"""

from __future__ import annotations

import importlib.util
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import tfgpu_magic
from tests.gpu import holding
from tests.gpu.holding import FRAMEWORKS, PREPARATIONS, SIZE, Suspended
from tests.gpu.observed import record
from tests.processes import program, run
from tests.simgpu.checkpoint_on_machine import allocate, hold
from tests.sizes import GIB
from tests.waiting import until

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(150)]

LITTLE = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""Others work on the machine, too."""


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_of_each_framework(framework: str, tmp_path: Path) -> None:
    skip_without(framework, "parks")
    loader = {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(tmp_path / "loader")}
    with program(None, holding.suspended, framework, env=LITTLE | loader, fresh=True) as held:
        seen: Suspended = held.answer
        lines = (tmp_path / f"loader.{held.pid}").read_text(errors="replace").splitlines()
        nvml = [line for line in lines if "libnvidia-ml.so" in line]
        unloaded = any("calling fini" in line for line in nvml)
    about: dict[str, Any] = {"framework": seen.framework or None}
    record("checks", "refused" if seen.against else "yes", seen.against, **about)
    record("mappings", "yes" if seen.mappings in (0, 1) else "no", [seen.mappings], **about)
    record("keeps-nvml", "no" if unloaded else "yes", ["loaded" if nvml else "never-loaded"], **about)
    tell("leaves", seen)
    if seen.trouble or seen.same is None:
        record("parks", "refused", [seen.trouble or "open-module"], **about)
    else:
        out, back = (round((seen.held[0] or SIZE) / seconds) for seconds in seen.seconds)
        record("parks", "yes" if seen.same else "no", held=seen.held[0], out=out, back=back, **about)
    until(lambda: held.pid not in listed())
    if seen.same is None and not seen.trouble:
        record("ends-suspended", "yes", **about)

    assert seen.same is not False


@pytest.mark.parametrize("prepared", PREPARATIONS)
def test_of_what_may_be_in_the_way(prepared: str) -> None:
    framework = prepared.partition("-")[0]
    question = "prefetch" if prepared.endswith("prefetch") else "after-profiler"
    skip_without(framework, question)
    seen = answer(question, framework, holding.suspended, framework, prepared)
    tell(question, seen)
    assert {"profiled", "prefetches"} & {*seen.against}


def test_of_two_gpus() -> None:
    if len(tfgpu_magic.look(60.0).gpus) < 2:
        skip("two-gpus", "one-gpu")
    tell("two-gpus", answer("two-gpus", None, holding.two_gpus))


def test_of_an_exclusive_mode() -> None:
    if not any(gpu.exclusive for gpu in tfgpu_magic.look(60.0).gpus):  # a test sets none
        skip("exclusive-mode", "default-mode")
    with program(None, hold, SIZE, fresh=True):
        errors = run(None, allocate, fresh=True)
    record("exclusive-mode", "no" if any(errors) else "yes", errors)


def test_of_a_kill_while_it_is_suspended() -> None:
    with program(None, holding.stays_away, SIZE, fresh=True) as held:
        os.kill(held.pid, signal.SIGKILL)
        until(lambda: held.pid not in listed())
    if held.answer:
        skip("killed-suspended", held.answer)
    record("killed-suspended", "yes")


def test_of_a_query_while_memory_is_copied() -> None:
    seconds, states = run(None, holding.asked_meanwhile, 2 * GIB, fresh=True)
    record("query-answers", "yes" if seconds < 1 else "no", [f"{seconds:.1f} s", *states], held=2 * GIB)


def answer(question: str, framework: str | None, *call: Any) -> Suspended:
    """Return what a process saw of its suspension; if it died of that, write so down, and be done."""
    try:
        seen: Suspended = run(None, *call, env=LITTLE, fresh=True)
    except EOFError:
        record(question, "no", ["died"], framework=framework)
        pytest.xfail("it died")
    return seen


def tell(question: str, seen: Suspended) -> None:
    """Write down whether a process left the GPU."""
    about: dict[str, Any] = {"framework": seen.framework or None, "held": seen.held[0]}
    if seen.trouble:
        record(question, "refused", [seen.trouble], **about)
    elif seen.held[1] or seen.same is False:
        record(question, "no", ["stayed" if seen.held[1] else "changed"], **about)
    else:
        record(question, "yes", **about, out=round((seen.held[0] or SIZE) / seen.seconds[0]))
    assert seen.same is not False


def skip_without(framework: str, question: str) -> None:
    if framework != "plain" and importlib.util.find_spec(framework) is None:
        skip(question, "not-installed", framework)


def skip(question: str, why: str, framework: str | None = None) -> None:
    record(question, "skipped", [why], framework=framework)
    pytest.skip(f"{question}: {why}")


def listed() -> set[int]:
    return {row.pid for row in tfgpu_magic.look(60.0).processes}
