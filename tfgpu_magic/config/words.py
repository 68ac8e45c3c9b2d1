"""Text to policy: the parser of `%tf_gpu`, whose words `grammar` has and whose meaning `policy`. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Context, Decimal

from tfgpu_magic import units
from tfgpu_magic.config.flags import part
from tfgpu_magic.config.grammar import POLICY_WORDS, find, forms, nearest, usage
from tfgpu_magic.config.policy import (
    Amount,
    Default,
    GpuRef,
    Growth,
    Limit,
    Pick,
    Policy,
    Request,
    Share,
    Split,
    SplitCpu,
    Visible,
    replaces,
)
from tfgpu_magic.config.word import Word
from tfgpu_magic.errors import PolicyError

MOST_PARTS = 64
"""The most logical devices to split one GPU or CPU into; more is a slip of the finger."""


_EXACT = Context(prec=28)  # the program's own may round to any number of digits
_ON, _OFF = ("on", "true", "yes", "1"), ("off", "false", "no", "0")
_UNIT = "|".join([*units.BINARY, *units.DECIMAL, *units.LETTERS])
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,6})?")
_COUNT = re.compile(r"[0-9]{1,4}")
_INSTANCE = re.compile(r"([0-9]{1,4})\.([0-9]{1,2})")
_PERCENT = re.compile(r"(?P<number>[0-9]{1,3}(?:\.[0-9]{1,6})?)%")
_UUID = re.compile(r"(?P<kind>GPU|MIG)-(?P<digits>[0-9a-f][0-9a-f/-]*)", re.IGNORECASE | re.ASCII)


def parse(text: str) -> Policy:
    """Read a policy: one request, or several with ``;`` between them.

    Args:
        text: for example ``growth``, ``limit 0=1GiB 1=25% --grow`` or ``pick 1; limit 2GiB``.

    Returns:
        The policy; `str` of it reads back as the same.

    Raises:
        PolicyError: the text is no policy; the error says which part is not, and what would be.
    """
    requests = [request for part in text.split(";") if part.strip() for request in _requests(part)]
    if not requests:
        raise PolicyError("Nothing was asked. The words are:\n" + usage(POLICY_WORDS))
    for place, later in enumerate(requests):
        undone = [earlier for earlier in requests[:place] if replaces(later, earlier)]
        if undone:
            raise PolicyError(f"`{later}` would undo `{undone[0]}`, which is said before it.{_both(later, undone[0])}")
    return Policy(tuple(requests))


def _both(later: Request, earlier: Request) -> str:
    """How growth and a limit are had together, if that is what is asked."""
    growth = [request for request in (later, earlier) if isinstance(request, Growth)]
    limit = [request for request in (later, earlier) if isinstance(request, Limit)]
    if not growth or not limit:
        return ""
    if growth[0].on:
        return f" For both, say `{replace(limit[0], grow=True)}`."
    return f" A limit is taken at once, and nothing grows: say `{limit[0]}` alone."


def _requests(text: str) -> Sequence[Request]:
    name, *tokens = _close_up(text).split()
    word = find(name, POLICY_WORDS)
    values, flags = _sort(word, tokens)
    return _READERS[word.name](values, flags)


def _close_up(text: str) -> str:
    """Take the blanks out that people put into one value: ``0 = 1 GiB`` is ``0=1GiB``."""
    text = re.sub(r"\s*=\s*", "=", text)
    return re.sub(rf"(?<=[0-9])\s+(?=(?:%|{_UNIT})(?:[\s,]|$))", "", text, flags=re.IGNORECASE)


def _sort(word: Word, tokens: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Part the values from the flags, each flag with its value ("" where it has none)."""
    lacks = {flag: f"{flag} of what? It needs a value." if takes else "" for flag, takes in word.flags}
    values, flags = part(tokens, lacks, forms(word.name))
    for flag in (value.partition("=")[0] for value in values if value.startswith("--")):
        raise PolicyError(f"{word.name!r} has no flag {flag!r}.{nearest(flag, lacks)}{forms(word.name)}")
    return values, flags


def _parts(values: Sequence[str]) -> list[str]:
    """The values, of which several may stand together with commas between them."""
    return [part for value in values for part in value.split(",") if part]


def _growth(values: Sequence[str], _: dict[str, str]) -> list[Request]:
    said = " ".join(values).lower() or "on"
    if said not in (*_ON, *_OFF):
        raise PolicyError(f"growth is on or off, not {' '.join(values)!r}.{forms('growth')}")
    return [Growth(on=said in _ON)]


def _limit(values: Sequence[str], flags: dict[str, str]) -> list[Request]:
    limits: dict[GpuRef | None, Request] = {}
    for value in _parts(values):
        target, equals, size = value.rpartition("=")
        if equals and not size:
            raise PolicyError(f"A limit of how much? {value!r} has no size.{forms('limit')}")
        if equals and "--gpu" in flags:
            raise PolicyError(f"GPU {target} or GPU {flags['--gpu']}? Name the GPU in one way only.{forms('limit')}")
        amount = _amount(size)
        for gpu in map(_gpu, _listed([target])) if equals else _flagged(flags):
            if gpu in limits:
                raise PolicyError(f"{'Every GPU' if gpu is None else f'GPU {gpu}'} has two limits.{forms('limit')}")
            limits[gpu] = Limit(amount, gpu, grow="--grow" in flags)
    if not limits:
        raise PolicyError(f"A limit of how much?{forms('limit')}")
    return [limits[gpu] for gpu in sorted(limits, key=lambda gpu: gpu is not None)]  # what is for every GPU first


def _flagged(flags: dict[str, str]) -> Sequence[GpuRef | None]:
    """The GPUs that `--gpu` names; every GPU where it is not said."""
    return list(dict.fromkeys(map(_gpu, _listed([flags["--gpu"]])))) if "--gpu" in flags else [None]


def _listed(values: Sequence[str]) -> list[str]:
    """GPUs that are named one by one or as ``0-2``, one by one."""
    named: list[str] = []
    for ref in _parts(values):
        span = re.fullmatch(r"([0-9]{1,4})-([0-9]{1,4})", ref)
        if span and int(span[1]) <= int(span[2]) < int(span[1]) + MOST_PARTS:
            named += map(str, range(int(span[1]), int(span[2]) + 1))
        else:
            named.append(ref)
    return named


def _split(values: Sequence[str], flags: dict[str, str]) -> list[Request]:
    values = _parts(values)
    if not values:
        raise PolicyError(f"Split into what?{forms('split')}")
    count = (
        _count(values[0], 2, "A device is split into") if len(values) == 1 and _NUMBER.fullmatch(values[0]) else None
    )
    if "--cpu" in flags:
        if count is None or len(flags) > 1:
            raise PolicyError(f"The CPU is split into a number of equal parts, and that is all.{forms('split')}")
        return [SplitCpu(count)]
    if len(values) > MOST_PARTS:
        raise PolicyError(f"{len(values)} parts are too many; {MOST_PARTS} is the most.")
    parts = count or tuple(map(_amount, values))
    return [Split(parts, gpu, grow="--grow" in flags) for gpu in _flagged(flags)]


def _visible(values: Sequence[str], _: dict[str, str]) -> list[Request]:
    refs = _listed(values)
    if not refs:
        raise PolicyError(f"Which GPUs?{forms('visible')}")
    if len(refs) == 1 and refs[0].lower() in ("all", "none"):
        return [Visible(None if refs[0].lower() == "all" else ())]
    if refs == ["-1"]:
        raise PolicyError("'-1' is not a GPU. For none, write `%tf_gpu visible none`.")
    gpus = tuple(map(_gpu, refs))
    if len(set(gpus)) < len(gpus):
        raise PolicyError(f"A GPU is named twice in {' '.join(values)!r}; CUDA would then show none.")
    return [Visible(gpus)]


def _pick(values: Sequence[str], flags: dict[str, str]) -> list[Request]:
    if len(values) > 1:
        raise PolicyError(f"How many GPUs? {' '.join(values)!r} is not one number.{forms('pick')}")
    if values and values[0].lower() == "all":
        raise PolicyError("How many GPUs? For all of them, write `%tf_gpu visible all`.")
    count = _count(values[0], 1, "GPUs to pick are") if values else 1
    return [Pick(count, _amount(flags["--need"]) if "--need" in flags else None)]


def _default(values: Sequence[str], _: dict[str, str]) -> list[Request]:
    if values:
        raise PolicyError(f"default stands alone; {' '.join(values)!r} is too much.")
    return [Default()]


_READERS: dict[str, Callable[[Sequence[str], dict[str, str]], Sequence[Request]]] = {
    "growth": _growth,
    "limit": _limit,
    "split": _split,
    "visible": _visible,
    "pick": _pick,
    "default": _default,
}


def _amount(text: str) -> Amount:
    """Read a size or a percentage; neither may be nothing."""
    if percent := _PERCENT.fullmatch(text):
        share = Share(Decimal(percent["number"]))
        if not 0 < share.percent <= 100:
            raise PolicyError(f"{text} of a GPU's memory cannot be had; more than 0% and at most 100% can.")
        return share
    if _NUMBER.fullmatch(text):
        raise PolicyError(f"{text} of what? Write {_readings(text)}.")
    size = units.parse_bytes(text)
    if not size:
        raise PolicyError(f"{text} is nothing; a limit is a size above zero.")
    return size


def _readings(number: str) -> str:
    """What a number without a unit may have meant."""
    value = Decimal(number)
    if value == 0:
        return "a size such as 2GiB, above zero"
    if value < 1:
        return f"{Share(value.scaleb(2, _EXACT))} (of the GPU), or {number}GiB"
    if value <= 100:
        return f"{number}GiB, or {number}% (of the GPU)"
    return f"{number}MiB, as TensorFlow counts, or {number}GiB"


def _count(text: str, least: int, what: str) -> int:
    if not _COUNT.fullmatch(text) or not least <= int(text) <= MOST_PARTS:
        raise PolicyError(f"{what} a number from {least} to {MOST_PARTS}, not {text!r}.")
    return int(text)


def _gpu(text: str) -> GpuRef:
    if _COUNT.fullmatch(text):
        return int(text)
    if instance := _INSTANCE.fullmatch(text):
        return f"{int(instance[1])}.{int(instance[2])}"
    if uuid := _UUID.fullmatch(text):
        return f"{uuid['kind'].upper()}-{uuid['digits'].lower()}"
    raise PolicyError(f"{text!r} is not a GPU. Write nvidia-smi's number, as in 0, or a UUID, as in GPU-5d1c….")
