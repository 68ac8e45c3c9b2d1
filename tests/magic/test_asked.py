"""What IPython itself is asked of the magic, and what only asks and is to change nothing."""

from __future__ import annotations

import os

from tests.magic.shell import Seen, cells
from tests.processes import run
from tests.tf.on_machine import held
from tfgpu_magic.simgpu import Machine


def test_a_question_mark_shows_the_help() -> None:
    with Machine.create("1x8GiB") as machine:
        asked, page = run(machine, _ask, env={"TERM": "dumb"})  # which has no pager

    assert asked.error == ""
    assert "limit 0=1GiB 1=4GiB 2=25%" in page
    assert "Docstring:" in page


def test_plan_code_and_env_change_neither_environment_nor_gpus() -> None:
    with Machine.create("2x8GiB") as machine:
        before, after, sizes = run(machine, _only_asked)

    assert after == before
    assert sizes == [0, 0]


def _ask() -> tuple[Seen, str]:
    from IPython.utils.capture import capture_output

    with capture_output() as heard:
        (asked,) = cells("%tf_gpu?")
    return asked, asked.text + heard.stdout


def _only_asked() -> tuple[dict[str, str], dict[str, str], list[int]]:
    before = dict(os.environ)
    cells("%tf_gpu plan limit 1GiB", "%tf_gpu code split 2", "%tf_gpu env visible 1; growth", "%tf_gpu plan")
    return before, dict(os.environ), held()
