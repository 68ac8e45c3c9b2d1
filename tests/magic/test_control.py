"""What a process that starts from here has of this one, and what is reported of a ceiling without a GPU."""

from __future__ import annotations

import pytest

from tests.policy.test_plan import gpu, snapshot
from tfgpu_magic.engine import engine
from tfgpu_magic.frameworks import self_report
from tfgpu_magic.frameworks.runtime import RUNTIME
from tfgpu_magic.policy.parser import parse
from tfgpu_magic.policy.plan import FrameworkPlan, Plan
from tfgpu_magic.policy.policy import NOTHING
from tfgpu_magic.policy.process_state import ProcessState, Stage

GROWTH = parse("growth")


def test_a_process_that_starts_from_here_is_told_what_this_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    here = ProcessState(stage=Stage.READY, frozen=True, host="session", keras="jax", old="2.15.1")
    monkeypatch.setattr(RUNTIME, "observe", lambda _: here)

    anew = engine.anew(snapshot(gpu(0)))

    assert anew == ProcessState(anew=True, host="session", keras="jax", old="2.15.1")


@pytest.mark.parametrize("stage", [Stage.ABSENT, Stage.IMPORTED])
def test_where_nothing_is_asked_under_a_ceiling_and_tensorflow_sees_no_gpu_no_policy_is_said_to_be_set(
    stage: Stage,
) -> None:
    summary = self_report._summary(
        ProcessState(stage=stage), Plan(asked=NOTHING, settled=GROWTH, tensorflow=FrameworkPlan(growth=True))
    )

    assert summary.endswith(" No policy is set.")
