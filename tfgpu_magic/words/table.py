"""Every word of `%tf_gpu`, in the order in which the help lists them."""

from __future__ import annotations

from tfgpu_magic.config.vocabulary import POLICY_WORDS
from tfgpu_magic.config.word import Word
from tfgpu_magic.words import code, env, help, isolate, jobs, plan, policy, status, top, why  # noqa: A004  # a word

WORDS: tuple[Word, ...] = (
    *map(policy.word, POLICY_WORDS),
    help.WORD,
    status.WORD,
    top.WORD,
    isolate.WORD,
    jobs.WORD,
    why.WORD,
    plan.WORD,
    code.WORD,
    env.WORD,
)
