"""A policy as a line: `policy.requests` describes its words, and a line does the same for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tfgpu_magic.engine import enforcement, engine
from tfgpu_magic.errors import TooLate
from tfgpu_magic.ground.answer import Document
from tfgpu_magic.ground.message import RESTART, WAIT
from tfgpu_magic.ground.process_kind import process_kind
from tfgpu_magic.policy import parser
from tfgpu_magic.policy.word import ParsedLine


def completions(tokens: Sequence[str], gpus: Callable[[], Sequence[str]]) -> list[str]:
    """Return what may follow in a policy, of which the line's word is a part."""
    return parser.offers(tokens, gpus, RESTART, WAIT)


def run(line: ParsedLine) -> Document:
    """Apply a policy here, or if it is too late and `--restart` is given, in a new kernel."""
    try:
        plan = engine.apply(line.text, frameworks=line.frameworks, wait=line.flags.get(WAIT))
    except TooLate:
        if not line.restart:
            raise
        plan = engine.foresee(line.text, line.frameworks, wait=line.flags.get(WAIT, ""))  # no kernel is lost in vain
        if process_kind() != "kernel":
            raise
    else:
        notes = (*plan.notes, *engine.of_workers(line.text, plan, line.frameworks))
        return engine.answer(replace(plan, notes=notes), engine.standing(plan, line.frameworks))
    from tfgpu_magic.notebook.restart import restart  # restarts are rare

    return restart(str(plan.asked) or "default", str(enforcement.said_to_others(plan)))
