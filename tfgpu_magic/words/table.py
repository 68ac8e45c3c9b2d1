"""Every word of `%tf_gpu`, in the order in which the help lists them."""

from __future__ import annotations

from tfgpu_magic.config.vocabulary import POLICY_WORDS
from tfgpu_magic.config.word import Word
from tfgpu_magic.words import (
    code,
    env,
    free,
    help,  # noqa: A004  # it is a word
    isolate,
    jobs,
    measure,
    park,
    plan,
    policy,
    status,
    tensors,
    top,
    track,
    unpark,
    why,
)

WORDS: tuple[Word, ...] = (
    *map(policy.word, POLICY_WORDS),
    help.WORD,
    status.WORD,
    top.WORD,
    measure.WORD,
    track.WORD,
    tensors.WORD,
    free.WORD,
    why.WORD,
    park.WORD,
    unpark.WORD,
    isolate.WORD,
    jobs.WORD,
    plan.WORD,
    code.WORD,
    env.WORD,
)
