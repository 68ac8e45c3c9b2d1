"""Prints in a shell what a word of `%tf_gpu` shows in a notebook: `tfgpu plan` and `tfgpu env`."""

from __future__ import annotations

from tfgpu_magic.command.wording import SHELL, frameworks, in_shell
from tfgpu_magic.ground.answer import Answer
from tfgpu_magic.notebook.words.line import module
from tfgpu_magic.policy.word import Magic, ParsedLine


def run(line: ParsedLine) -> int:
    """Print it."""

    def answer() -> object:
        magic: Magic = "gpu" if frameworks(line.rest) == "all" else "tf_gpu"
        shown: object = module(line.word).run(line._replace(magic=magic))
        return shown

    shown = in_shell(answer, f'tfgpu {line.name} "{{}}"'.format)
    print(shown.text(SHELL) if isinstance(shown, Answer) else shown)
    return 0
