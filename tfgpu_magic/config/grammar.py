"""The words of `%tf_gpu`: one table, from which come the help, the completions and the parser's errors. Pure."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterable, Sequence

from tfgpu_magic.config.requests import REQUESTS
from tfgpu_magic.config.word import Word
from tfgpu_magic.errors import PolicyError

POLICY_WORDS = tuple(request.WORD for request in REQUESTS)

OTHER_WORDS = (
    Word("help", ("help",), "this list of the words; also `%tf_gpu?`"),
    Word("status", ("status",), "GPUs, processes and this kernel's TensorFlow at one look; also `%tf_gpu` alone"),
    Word("top", ("top",), "the same as a live table, in a notebook: it goes on while cells run"),
    Word(
        "isolate",
        ("%%tf_gpu isolate", "%%tf_gpu isolate -o model limit 2GiB", "isolate --warm"),
        "run the cell in a process of its own, which gives its GPU memory back; --warm gets ready for that",
    ),
    Word(
        "jobs",
        ("jobs", "jobs stop 1"),
        "the isolated cells that run in the background, and their states; `stop` ends one",
    ),
    Word("plan", ("plan WORDS",), "what the words would do, GPU by GPU; nothing is done"),
    Word("code", ("code [WORDS]",), "Python for a script that does what the words do, or what is asked already"),
    Word("env", ("env [WORDS]",), "shell lines that do it, as far as environment variables can"),
)

WORDS = POLICY_WORDS + OTHER_WORDS

_GIVES_BACK = (
    "TensorFlow gives memory back to the driver only when its process ends. Restart the kernel, or run such work in a "
    "cell that begins with `%%tf_gpu isolate`: its process ends with it."
)
_DROPS = "`%tf_gpu default` drops what was asked and is not in force yet; what is in force ends with a restart only."
_LIMITS = "A part of every GPU's memory is `%tf_gpu limit 40%`, a size `%tf_gpu limit 2GiB`."
_MEANT = {
    **dict.fromkeys(("free", "release", "empty_cache", "gc"), _GIVES_BACK),
    **dict.fromkeys(("reset", "clear", "unset"), f"{_DROPS} {_GIVES_BACK}"),
    **dict.fromkeys(("off", "undo", "drop"), _DROPS),
    **dict.fromkeys(("memory", "mem", "usage", "info", "nvidia-smi"), f"Who holds what is `%tf_gpu status`. {_LIMITS}"),
    **dict.fromkeys(("fraction", "percent", "per_process_gpu_memory_fraction", "memory_limit", "max"), _LIMITS),
    **dict.fromkeys(
        ("none", "all", "cpu"), "Which GPUs TensorFlow sees is `%tf_gpu visible none`, `visible all`, `visible 0,1`."
    ),
    **dict.fromkeys(("watch", "live", "monitor"), "The live table is `%tf_gpu top`."),
    **dict.fromkeys(("allow_growth", "grow", "set_memory_growth"), "Memory growth is `%tf_gpu growth`."),
    **dict.fromkeys(("run", "exec", "background"), "Above a cell, `%%tf_gpu isolate` runs it in a process of its own."),
}
"""What to say to words that other tools have for what ours do, or for what nobody can do."""

_FLAGS = {
    **dict.fromkeys(("--output", "--outputs", "--out", "--bring", "--return"), "-o"),
    **dict.fromkeys(("--input", "--inputs", "--in", "--send", "--names"), "-i"),
    **dict.fromkeys(("--background", "--bg", "--async", "--nowait", "--no-wait"), "--detach"),
    **dict.fromkeys(("--growth", "--cap"), "--grow"),
}
"""Flags that people may try for ours, and that do not look like them."""

WIDTH = 80
"""Characters in a line of the help: what a cell of a notebook shows without breaking it, beside an open sidebar."""

ISOLATE = "isolate"
"""The word that may stand above a cell."""
ISOLATE_FLAGS = (
    ("-i", "NAMES", "send only these names (`-` for none), or with `+x,y` these too; else those that the cell reads"),
    ("-o", "NAMES", "bring these names back, as in `-o model,history`"),
    ("--gpus", "N", "see only N GPUs, the free ones with most memory"),
    ("--timeout", "TIME", "end it after so long: 90s, 10m, 2h"),
    ("--detach", "", "don't wait: the cell runs in the background, and `%tf_gpu jobs` lists it"),
)
"""Each flag, the value it takes, and its meaning."""
RESTART = "--restart"
"""The flag of the magic that restarts this kernel when it is too late, and applies the words in the new one."""


def flags() -> str:
    """The flags of an isolated cell's line and their meanings, as aligned text."""
    return _aligned([((f"{flag} {takes}".rstrip(),), meaning) for flag, takes, meaning in ISOLATE_FLAGS])


def usage(words: Sequence[Word] = WORDS) -> str:
    """The words and their meanings, as aligned text."""
    return _aligned([(word.usage, word.meaning) for word in words])


def _aligned(entries: Sequence[tuple[tuple[str, ...], str]]) -> str:
    """Forms on the left and what they mean beside them, in lines of `WIDTH` characters that break between words."""
    margin = 4 + max(len(form) for forms, _ in entries for form in forms)
    rows = [
        row
        for forms, meaning in entries
        for row in itertools.zip_longest(forms, textwrap.wrap(meaning, WIDTH - margin), fillvalue="")
    ]
    return "\n".join(f"  {form:<{margin - 2}}{meaning}".rstrip() for form, meaning in rows)


def find(name: str, words: Sequence[Word] = WORDS) -> Word:
    """The word of that name.

    Raises:
        PolicyError: there is none; its text suggests the nearest.
    """
    for word in words:
        if word.name == name.lower():
            return word
    if any(word.name == name.lower() for word in WORDS):
        raise PolicyError(f"`{name.lower()}` is no policy: it stands alone, at the beginning of its line.")
    if re.match(r"[0-9]", name):
        raise PolicyError(f"{name!r} is not a word of %tf_gpu. For a limit, write `%tf_gpu limit {name}`.")
    if name.lower() in _MEANT:
        raise PolicyError(f"{name!r} is not a word of %tf_gpu. {_MEANT[name.lower()]}")
    near = nearest(name, [word.name for word in words])
    raise PolicyError(f"{name!r} is not a word of %tf_gpu.{near} `%tf_gpu?` explains them.")


def forms(name: str) -> str:
    """A sentence with the forms in which the word is written."""
    return find(name).forms


def nearest(wrong: str, known: Iterable[str]) -> str:
    """A sentence with the known word that the wrong one may have meant; else with all of them."""
    import difflib  # only mistakes need it

    known = list(known)
    near = [_FLAGS[wrong.lower()]] if _FLAGS.get(wrong.lower()) in known else []
    near = near or difflib.get_close_matches(wrong.lower(), known, n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(known)}." if known else ""
