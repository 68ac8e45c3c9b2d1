"""What is said of a plan that was applied, and what a process that starts from here has of this one."""

from __future__ import annotations

import pytest

from tests.policy.test_plan import gpu, snapshot
from tfgpu_magic.engine import engine
from tfgpu_magic.frameworks import self_report
from tfgpu_magic.frameworks.runtime import RUNTIME
from tfgpu_magic.policy.fit import Device
from tfgpu_magic.policy.parser import parse
from tfgpu_magic.policy.plan import Plan
from tfgpu_magic.policy.policy import NOTHING
from tfgpu_magic.policy.process_state import ProcessState, Stage

LIMIT = parse("limit 1GiB")
GROWTH = parse("growth")
ONE = (Device(gpu=gpu(0), limits=(2**30,), words=LIMIT.memory[0]),)


@pytest.mark.parametrize(
    ("plan", "stage", "said"),
    [
        (Plan(asked=LIMIT, settled=LIMIT, devices=ONE), Stage.ABSENT, "waits for TensorFlow's import."),
        (Plan(asked=LIMIT, settled=LIMIT, devices=ONE), Stage.IMPORTED, "is in force from TensorFlow's first op on."),
        (Plan(asked=LIMIT, settled=LIMIT, devices=ONE), Stage.READY, "is in force."),
        (Plan(asked=LIMIT, settled=LIMIT, judged=False), Stage.ABSENT, "is checked against the GPUs again then."),
        (Plan(asked=LIMIT, settled=LIMIT, growth=False), Stage.ABSENT, "has no effect here: TensorFlow sees no GPU."),
        (Plan(asked=GROWTH, settled=GROWTH), Stage.ABSENT, "also for programs that are started from here."),
        (Plan(asked=GROWTH, settled=GROWTH, in_force=True), Stage.READY, "is in force already."),
    ],
)
def test_how_a_plan_stands_follows_from_the_plan_and_how_far_tensorflow_has_come(
    plan: Plan, stage: Stage, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "current_stage", lambda: stage)

    assert engine.standing(plan).endswith(said)


def test_a_process_that_starts_from_here_is_told_what_this_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    here = ProcessState(stage=Stage.READY, frozen=True, host="session", keras="jax", old="2.15.1")
    monkeypatch.setattr(RUNTIME, "observe", lambda _: here)

    anew = engine.anew(snapshot(gpu(0)))

    assert anew == ProcessState(anew=True, host="session", keras="jax", old="2.15.1")


@pytest.mark.parametrize("stage", [Stage.ABSENT, Stage.IMPORTED])
def test_where_nothing_is_asked_under_a_ceiling_and_tensorflow_sees_no_gpu_no_policy_is_said_to_be_set(
    stage: Stage,
) -> None:
    summary = self_report._summary(ProcessState(stage=stage), Plan(asked=NOTHING, settled=GROWTH, growth=True))

    assert summary.endswith(" No policy is set.")
