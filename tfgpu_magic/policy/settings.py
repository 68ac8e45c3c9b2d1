"""The settings of `c.TfGpuMagics` and of the administrator's file, each checked by itself: a wrong one leaves the rest.

A setting of words, such as a policy, is its text whatever its type: what reads the words tells what is wrong with them.
"""

from __future__ import annotations

import difflib
import grp
import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from traitlets import Bool, Dict, Float, TraitError, Unicode
from traitlets.config import Config, Configurable

from tfgpu_magic import policy

CONFIGURATION = "the configuration"
"""The source of what `c.TfGpuMagics` says, as a phrase."""

SECTION = "TfGpuMagics"
_CEILINGS = ("ceiling", "ceilings")
_OTHERS = ("TfGpuServer",)
"""Sections of ours that are a server's."""
_NOT_FOR_KERNELS = ("limits", "idle")
"""The tables of the file that are for `tfgpu limits` and servers."""
REMOVED = {
    "bound": "Set `[limits]`, which the driver enforces, or the alert TfGpuOverBound in Prometheus.",
    "metrics": "A server exports no figures. `tfgpu exporter` does, for all users of a machine.",
    **dict.fromkeys(
        ("parking", "parking_on_open_module", "parking_memory", "parking_disk"),
        "`%tf_gpu park` needs none, and `park` in the administrator's `[idle]` parks idle notebooks. Remove the line.",
    ),
}
"""Settings that are no longer there, each with what to set instead."""


class Words(Unicode):  # type: ignore[type-arg]  # not generic in all releases of traitlets
    """A setting that is read as words."""

    def validate(self, obj: Any, value: Any) -> str:  # noqa: ARG002  # as traitlets has it
        """Return the text of any value."""
        return str(value).strip()


class ByGroup(Dict):
    """Settings of words by Unix group."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Return the texts of what a dictionary has."""
        return {str(group): str(words) for group, words in (super().validate(obj, value) or {}).items()}


class TfGpuSettings(Configurable):
    """All settings, with their defaults."""

    policy = Words(
        "",
        help="The policy, such as `growth`, that holds for TensorFlow, PyTorch and JAX until a `%gpu` line, or for "
        "TensorFlow a `%tf_gpu` line, says another. It is checked when one is imported; where it cannot be had in "
        "full, the nearest that can holds, at least growth.",
    ).tag(config=True)

    policies = ByGroup(
        help="Policies by Unix group, as in `{'students': 'limit 25%'}`: that of the first group that the user is in "
        "holds in place of `policy`.",
    ).tag(config=True)

    ceiling = Words(
        "",
        help="The most that each framework of a process (TensorFlow, PyTorch, JAX) may take of each GPU, such as "
        "`limit 40%`, whatever its user asks for. In a session it can be lowered, and not raised. $TFGPU_CEILING is "
        "one too; of both the lower holds.",
    ).tag(config=True)

    ceilings = ByGroup(
        help="Ceilings by Unix group: that of the first group that the user is in holds in place of `ceiling`. That of "
        "a group that is unknown on the machine holds for everybody who comes to it in the list.",
    ).tag(config=True)

    quiet = Bool(
        False,
        help="Whether nothing is said below the cell that imports TensorFlow where the policy is in force in full; "
        "warnings stay.",
    ).tag(config=True)

    quiet_tensorflow = Bool(
        False,
        help="Whether TensorFlow logs errors only: TF_CPP_MIN_LOG_LEVEL is set to 2 where it is not set already, for "
        "this kernel and for the processes that it starts. The few lines that TensorFlow writes before it reads that, "
        "such as the note on oneDNN, are still shown.",
    ).tag(config=True)

    why = Bool(
        True,
        help="Whether `%tf_gpu why` is shown by itself under a cell that a lack of GPU memory has ended.",
    ).tag(config=True)

    warm = Bool(
        False,
        help="Whether to get ready for isolated cells when the extension is loaded: a process of some 600 MB beside "
        "every kernel, also beside one that never uses TensorFlow.",
    ).tag(config=True)

    grace = Float(
        60.0,
        min=0.0,
        help="Seconds that an isolated call has to end when its timeout has interrupted it; then it is killed.",
    ).tag(config=True)

    release_after = Float(
        60.0,
        min=0.0,
        help="Seconds without a running cell after which, under `growth --release`, GPU memory that TensorFlow does "
        "not use is given back to the driver; with 0 only by `%tf_gpu free` and `tfgpu_magic.give_back()`.",
    ).tag(config=True)


class Settings(NamedTuple):
    """What one source sets.

    Attributes:
        where: the source, as a phrase.
        values: the settings that can be used, by name.
        flaws: what is wrong with the others, a sentence each.
        unread: why the ceiling is unknown; empty where it is not.
    """

    where: str
    values: Mapping[str, Any] = MappingProxyType({})
    flaws: tuple[str, ...] = ()
    unread: str = ""

    @property
    def policy(self) -> tuple[str, str] | None:
        """The policy of this user and its source, as a phrase; None where nothing is said of it."""
        for group, words in self.values.get("policies", {}).items():
            if _is_member(group):
                return words, f"{self.where} for the group {group}"
        return (self.values["policy"], self.where) if "policy" in self.values else None

    @property
    def ceilings(self) -> Iterator[tuple[str, str]]:
        """The ceilings that this user is held to, each with its source as a phrase; an empty text is none."""
        for group, words in self.values.get("ceilings", {}).items():
            member = _is_member(group)
            if member is not False:  # of an unknown group this user may be a member
                yield words, f"{self.where} for the group {group}"
            if member:
                return
        yield self.values.get("ceiling", ""), self.where


def of_configuration(config: Mapping[str, Any], where: str = CONFIGURATION) -> Settings:
    """Return what IPython's configuration sets; a section of a name that is nearly ours counts, and is told."""
    ours = [name for name in config if name.lower().startswith("tfgpu") and name not in _OTHERS]
    given = {name: value for one in ours if isinstance(config[one], Mapping) for name, value in config[one].items()}
    flaws = [f"`c.{name}`, in {where}, is no section: write `c.{SECTION}`." for name in ours if name != SECTION]
    flaws += [
        f"`c.{name} = {config[name]!r}`, in {where}, is NOT in force: name a setting, as in `c.{SECTION}.policy`."
        for name in ours
        if not isinstance(config[name], Mapping)
    ]
    return _sound(given, where, flaws)


def of_file() -> Settings:
    """Return what the administrator's file sets, if there is one; where it cannot be read, no GPU may be used."""
    where = str(policy.FILE)
    if not os.path.lexists(policy.FILE):
        return Settings(where)
    try:
        toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
        given = toml.loads(policy.FILE.read_text(encoding="utf-8"))
        return _sound({name: value for name, value in given.items() if name not in _NOT_FOR_KERNELS}, where)
    except Exception as error:  # whatever it is, there may be a ceiling
        why = f"{where} cannot be read: {type(error).__name__}: {error}. Its ceiling is unknown: no GPU may be used."
        return Settings(where, unread=why)


def policy_for_user(*given: Settings) -> tuple[str, str]:
    """Return the policy of this user and its source: the environment's, else that of the first that has one."""
    if policy.POLICY in os.environ:
        return os.environ[policy.POLICY], f"${policy.POLICY}"
    return next((found for settings in given if (found := settings.policy) is not None), ("", ""))


def removed(name: str, where: str) -> str:
    """Return what is said of a setting that was removed, with its source."""
    return f"`{name}`, from {where}, is no setting any more. {REMOVED[name]}"


def _sound(given: Mapping[str, Any], where: str, told: list[str] | None = None) -> Settings:
    """Return settings without those that are none."""
    values: dict[str, Any] = {}
    flaws, unread = list(told or ()), ""
    for name, value in given.items():
        meant = name if name in _NAMES else _nearest(name)
        if name in REMOVED:
            flaws.append(removed(name, where))
            continue
        try:
            if name != meant:
                held = f"It counts as `{meant}`." if meant in _CEILINGS else f"Did you mean {meant!r}?" if meant else ""
                flaws.append(f"`{name}`, from {where}, is no setting. {held}".rstrip())
            if name == meant or meant in _CEILINGS:
                one = TfGpuSettings(config=Config({TfGpuSettings.__name__: {meant: value}}))
                values[meant] = getattr(one, meant)
        except Exception as error:  # traitlets, and what a value's own class may raise
            why = str(error).partition("\n")[0] if isinstance(error, TraitError) else f"{type(error).__name__}: {error}"
            if meant in _CEILINGS:
                unread = f"`{name} = {value!r}`, from {where}, cannot be read: no GPU may be used. {why}"
            else:
                flaws.append(f"`{name} = {value!r}`, from {where}, is NOT in force. {why}")
    flaws += [
        f"This machine knows no group `{group}`, from {where}: nobody has its policy, and everybody who comes to it in "
        "the list its ceiling. Mend the name, or write the group's number."
        for group in {**values.get("policies", {}), **values.get("ceilings", {})}
        if _is_member(group) is None
    ]
    return Settings(where, values, tuple(flaws), unread)


_NAMES = tuple(TfGpuSettings.class_own_traits(config=True))


def _nearest(name: str) -> str:
    """Return the setting that a wrong name may mean; empty where there is none."""
    return next(iter(difflib.get_close_matches(name.lower(), _NAMES, n=1)), "")


def _is_member(group: str) -> bool | None:
    """Return whether this user is in a Unix group, by its name or number; None if no group has that name here."""
    try:
        number = int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
    except KeyError:
        return None
    return number in {os.getegid(), *os.getgroups()}
