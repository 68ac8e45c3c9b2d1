"""`tfgpu env`: a policy as shell lines, as far as environment variables can express it."""

from __future__ import annotations

import argparse

from tfgpu_magic.command.wording import WORDS, frameworks, in_shell
from tfgpu_magic.engine import engine
from tfgpu_magic.policy import script


def prepare(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.epilog = f'In a shell:   eval "$(tfgpu env growth)"\n\n{WORDS}'
    parser.add_argument("policy", nargs="+", metavar="POLICY", help="what is asked, such as `visible 0; growth`")


def run(options: argparse.Namespace) -> int:
    """Print the lines."""
    policy = " ".join(options.policy)
    plan = in_shell(lambda: engine.sketch(policy, frameworks(policy)), 'tfgpu env "{}"'.format)
    print(script.shell(plan))
    return 0
