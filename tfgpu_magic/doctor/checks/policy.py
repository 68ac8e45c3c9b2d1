"""What the environment, IPython's configuration and the administrator's file set, and whether it holds in kernels."""

from __future__ import annotations

from collections.abc import Iterator

from tfgpu_magic.doctor import child
from tfgpu_magic.doctor.finding import outcome
from tfgpu_magic.doctor.machine import ThisMachine
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.ground.message import Message, Severity
from tfgpu_magic.policy import parser
from tfgpu_magic.policy.ceiling import read
from tfgpu_magic.policy.requests.growth import GROWS

NONE = outcome("policy.none", Severity.GOOD, "Neither a policy nor a ceiling is set.")
SET = outcome("policy.set", Severity.GOOD, "The policy `{policy}`, from {where}, holds until a notebook says another.")
MISSPELT = outcome(
    "policy.misspelt",
    Severity.FAULT,
    "`{policy}`, from {where}, is no policy, and `{instead}` holds in its place. {why}",
    "Mend it there; this shows what a policy would do:\n  tfgpu plan POLICY",
)
UNDER = outcome("policy.under", Severity.GOOD, "The ceiling `{ceiling}`, from {where}, holds whatever a notebook says.")
TWICE = outcome(
    "policy.twice",
    Severity.WARNING,
    "The ceiling `{ceiling}`, from {where}, is a share of the {limit_bytes} that the driver allows here of GPU {gpu}: "
    "{most_bytes}.",
    "Drop the ceiling, or write it in GiB.",
)
_LOAD = (
    "In ipython_config.py, where a list of the user's own does not replace it:\n"
    '  c.InteractiveShellApp.extra_extensions = ["tfgpu_magic"]'
)
NOT_LOADED = outcome(
    "policy.not-loaded",
    Severity.WARNING,
    "It is for kernels that load the extension, and IPython's configuration does not have each of them load it.",
    _LOAD,
)
NOT_HELD = outcome(
    "policy.not-held",
    Severity.FAULT,
    "The ceiling `{ceiling}`, from {where}, does not hold in kernels: IPython's configuration does not have each of "
    "them load the extension.",
    _LOAD,
)
WRONG = outcome("policy.wrong", Severity.FAULT, "{flaw}", "Mend it there. All other settings hold.")
BROKEN = outcome(
    "policy.broken",
    Severity.FAULT,
    "IPython's configuration {file} fails: {why}. Kernels start without what it says.",
    "Mend it; IPython says where it fails:\n  ipython -c ''",
)
FAILS = outcome(
    "policy.fails",
    Severity.FAULT,
    "IPython's configuration could not be read, and the extension loaded with it: {why}",
    "IPython says where it fails:\n  ipython -c '%load_ext tfgpu_magic'",
)

_CODE = "from tfgpu_magic.doctor.ipython_child import main; main()"


def policy(machine: ThisMachine) -> Iterator[Message]:
    """Yield which policies are set, and by whom."""
    answer = child.ask(_CODE, patience=child.IMPORTING)
    if not answer.facts:
        yield FAILS(why=answer.why)
        return
    broken, wrong, loaded, (words, where), ceiling = (
        answer.facts[name] for name in ("broken", "wrong", "loaded", "policy", "ceiling")
    )
    yield from (BROKEN(file=file, why=why) for file, why in broken.items())
    yield from (WRONG(flaw=flaw) for flaw in wrong)
    try:
        if words:
            parser.parse(words)
            yield SET(policy=words, where=where)
    except PolicyError as error:
        yield MISSPELT(policy=words, where=where, instead=str(GROWS), why=str(error).partition("\n")[0])
    if ceiling:
        yield from (WRONG(flaw=flaw) for flaw in ceiling["flaws"])
        told = {"ceiling": ceiling["ceiling"], "where": ceiling["where"]}
        yield (UNDER if loaded else NOT_HELD)(**told)
        for gpu in machine.snapshot.gpus if "%" in ceiling["ceiling"] else ():
            if gpu.limit is not None and gpu.capacity is not None:
                yield TWICE(
                    gpu=gpu.label, limit_bytes=gpu.capacity, most_bytes=read(told["ceiling"]).bytes(gpu), **told
                )
    elif words and not loaded:
        yield NOT_LOADED()
    elif not words and not broken:
        yield NONE()
