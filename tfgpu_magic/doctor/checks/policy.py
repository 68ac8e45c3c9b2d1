"""The policy and the ceiling that the environment or IPython's configuration sets, and whether kernels load them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from tfgpu_magic.config import ceiling, fallback, parser
from tfgpu_magic.config.ceiling import Ceiling
from tfgpu_magic.config.variables import CEILING, POLICY
from tfgpu_magic.configuration import policy_for_user
from tfgpu_magic.doctor import child
from tfgpu_magic.doctor.finding import Finding, Outcome, Severity
from tfgpu_magic.doctor.machine import Machine
from tfgpu_magic.errors import PolicyError

NONE = Outcome("policy.none", Severity.GOOD, "Neither a policy nor a ceiling is set.")
SET = Outcome("policy.set", Severity.GOOD, "The policy `{policy}`, from {where}, holds until a notebook says another.")
MISSPELT = Outcome(
    "policy.misspelt",
    Severity.FAULT,
    "`{policy}`, from {where}, is no policy, and `{instead}` holds in its place. {why}",
    "Mend it there; this shows what a policy would do:\n  tfgpu plan POLICY",
)
UNDER = Outcome("policy.under", Severity.GOOD, "The ceiling `{ceiling}`, from {where}, holds whatever a notebook says.")
FLAWED = Outcome(
    "policy.flawed", Severity.FAULT, "{flaw}", "Mend it there. A ceiling is `limit 40%`, `limit 4GiB` or both."
)
NOT_LOADED = Outcome(
    "policy.not-loaded",
    Severity.WARNING,
    "It is for kernels that load the extension, and IPython's configuration does not have each of them load it.",
    'In ipython_config.py:\n  c.InteractiveShellApp.extensions = ["tfgpu_magic"]',
)
BROKEN = Outcome(
    "policy.broken",
    Severity.FAULT,
    "IPython's configuration {file} fails: {why}. Kernels start without what it says.",
    "Mend it; IPython says where it fails:\n  ipython -c ''",
)
UNREAD = Outcome("policy.unread", Severity.WARNING, "IPython's configuration could not be read: {why}")

_CODE = "from tfgpu_magic.doctor.children.ipython import main; main()"


def policy(machine: Machine) -> Iterator[Finding]:
    """Tell what is set, and by whom."""
    answer = child.ask(_CODE, patience=child.IMPORTING)
    if not answer.facts:
        yield UNREAD(why=answer.why)
    for file, why in answer.facts.get("broken", {}).items():
        yield BROKEN(file=file, why=why)
    settings = answer.facts.get("settings", {})
    found = [*_policy(machine.environ, settings), *_ceiling(machine.environ, settings)]
    yield from found
    if not found and answer.facts:
        yield NONE()
    elif found and not answer.facts.get("loaded"):
        yield NOT_LOADED()


def _policy(environ: Mapping[str, str], settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Tell the policy that this user's kernels have."""
    words, where = policy_for_user(_value(settings, "policy", ""), _value(settings, "policies", {}), environ)
    if not words.strip():
        return
    files = {settings[name]["file"]: None for name in ("policy", "policies") if name in settings}
    where = where if POLICY in environ else f"{where} ({' and '.join(files)})"
    try:
        parser.parse(words)
    except PolicyError as error:
        yield MISSPELT(policy=words, where=where, instead=str(fallback.GROWS), why=str(error).partition("\n")[0])
    else:
        yield SET(policy=words, where=where)


def _ceiling(environ: Mapping[str, str], settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Tell the lower of the environment's and the configuration's ceiling."""
    texts = {f"${CEILING}": environ.get(CEILING, "")}
    if "ceiling" in settings:
        texts[settings["ceiling"]["file"]] = settings["ceiling"]["value"]
    read = {where: ceiling.safe(text, where) for where, text in texts.items() if text.strip()}
    if read:
        lowest = functools.reduce(Ceiling.lower_of, read.values())
        for flaw in lowest.flaws:
            yield FLAWED(flaw=flaw)
        yield UNDER(ceiling=str(lowest), where=" and ".join(read))


def _value(settings: Mapping[str, Any], name: str, default: Any) -> Any:
    return settings[name]["value"] if name in settings else default
