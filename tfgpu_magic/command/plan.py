"""`tfgpu plan`: what a policy would do, GPU by GPU."""

from __future__ import annotations

import argparse

from tfgpu_magic import control
from tfgpu_magic.command.wording import WORDS, in_shell
from tfgpu_magic.views.plan import PlanAnswer


def prepare(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.epilog = WORDS
    parser.add_argument("policy", nargs="+", metavar="POLICY", help="what would be asked, such as `limit 40%%`")


def run(options: argparse.Namespace) -> int:
    """Print the plan."""
    policy = " ".join(options.policy)
    plan = in_shell(lambda: control.plan(policy), 'tfgpu plan "{}"'.format)
    print(PlanAnswer(plan, f"`{str(plan.asked) or policy}` would do this:"))
    return 0
