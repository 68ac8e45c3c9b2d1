"""`tfgpu plan`: what a policy would do in a program that `tfgpu run` runs, GPU by GPU."""

from __future__ import annotations

import argparse

from tfgpu_magic.command.wording import SHELL, WORDS, frameworks, in_shell
from tfgpu_magic.engine import engine
from tfgpu_magic.ground.answer import Document


def prepare(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.epilog = WORDS
    parser.add_argument("policy", nargs="+", metavar="POLICY", help="what would be asked, such as `limit 40%%`")


def run(options: argparse.Namespace) -> int:
    """Print the plan."""
    policy = " ".join(options.policy)
    print(in_shell(lambda: _answer(policy), 'tfgpu plan "{}"'.format).text(SHELL))
    return 0


def _answer(policy: str) -> Document:
    scope = frameworks(policy)
    return engine.would_do(engine.plan(policy, frameworks=scope), policy, scope)
