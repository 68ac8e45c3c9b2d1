"""Whether a process's GPU state can be parked in host memory here: what can be seen of that, or a try, if asked for."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tfgpu_magic.doctor import child
from tfgpu_magic.doctor.checks.tensorflow import installed
from tfgpu_magic.doctor.finding import Finding, Outcome, Severity
from tfgpu_magic.doctor.machine import ThisMachine
from tfgpu_magic.model.report import HeldMemory
from tfgpu_magic.model.snapshot import Gpu
from tfgpu_magic.parking import checks, facts
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.answers import reasons
from tfgpu_magic.parking.checks import Inside, ParkFacts
from tfgpu_magic.parking.doctor_child import CHUNK
from tfgpu_magic.parking.observation import MODULES, Observation, Seen
from tfgpu_magic.parking.refusals import Refusal
from tfgpu_magic.policy.memory import context_bytes
from tfgpu_magic.policy.process_state import DEVICES, GROWTH
from tfgpu_magic.units import BINARY

ROOM = 2 * BINARY["GiB"]
"""The bytes that must be free on a GPU before a process is tried there: the others' programs come first."""
SIZE = BINARY["GiB"]
"""The most bytes of tensors that the process has, so that the rates mean something."""
COPYING = 45.0
"""Seconds for all that comes after TensorFlow's import."""

_TELL = "Park nothing on this machine. Please tell us, with this report:\n  tfgpu doctor --json > doctor.json"

_ALLOW = "Where nobody else works, this tries it all the same:\n  tfgpu doctor --allow-open-module"
AGAINST = {
    reason: Outcome(
        f"parking.{reason.name}", Severity.NOTE, reason.sentence, _ALLOW if reason is why.OPEN_MODULE else ""
    )
    for reason in (
        why.OLD_DRIVER, why.EXCLUSIVE, why.OPEN_MODULE, why.UNKNOWN_MODULE, why.OTHER_ARCHITECTURE,
        why.MIG_GPU, why.UNIFIED_MEMORY, why.NO_WAY_BACK, why.HOST_MEMORY, why.UNLISTED,
    )
}  # fmt: skip
"""What speaks against it on this machine: parking's own reasons, each with what to do next."""

NOT_TRIED = Outcome(
    "parking.not-tried",
    Severity.NOTE,
    "Nothing that can be seen without trying is in its way. The way back has been tried on a simulated driver only: on "
    "a real one you may be the first.",
    "This parks a TensorFlow process made for it, and brings it back:\n  tfgpu doctor --park",
)
UNTRIED = Outcome(
    "parking.untried",
    Severity.NOTE,
    "It was not tried: that takes TensorFlow, and a GPU that CUDA shows to programs, of which {room_bytes} are free.",
)
WORKS = Outcome(
    "parking.works",
    Severity.GOOD,
    "A TensorFlow process was parked: its {size_bytes} left GPU {gpu} in {out_seconds} s, {out_rate_bytes}/s, and came "
    "back in {back_seconds} s, {back_rate_bytes}/s. All that it had there is as it was. On a GPU that others use, a "
    "return can still fail for good: their programs may take the room in its last milliseconds.",
)
CHANGED = Outcome(
    "parking.changed",
    Severity.FAULT,
    "A TensorFlow process came back to GPU {gpu} with other contents than it had.",
    _TELL,
)
STAYED = Outcome(
    "parking.stayed",
    Severity.FAULT,
    "A TensorFlow process was parked, and the driver still listed {held_bytes} of it on GPU {gpu}.",
    _TELL,
)
REFUSED = Outcome("parking.refused", Severity.WARNING, "A TensorFlow process could not be parked. {reasons}")
CROWDED = Outcome(
    "parking.crowded",
    Severity.NOTE,
    "A TensorFlow process was parked, and others took the room that it had on GPU {gpu}. It was ended.",
    "Try it again when fewer programs start.",
)
LOST = Outcome(
    "parking.lost", Severity.FAULT, "A TensorFlow process was parked, and did not come back. {reasons}", _TELL
)
ENDED = Outcome(
    "parking.ended",
    Severity.FAULT,
    "A TensorFlow process was to be parked and to come back, and gave no answer: {why}",
    _TELL,
)

_CODE = (
    "from tfgpu_magic.parking.doctor_child import keep_nvml, main; keep_nvml(); import tensorflow; "
    "main(tensorflow, {size}, allow_open_module={allow_open_module})"
)


def parking(machine: ThisMachine) -> Iterator[Finding]:
    """Tell why nothing can be parked here, or on which GPUs; else try it, if that is wanted."""
    if not machine.driver.works:
        return
    whole = [gpu for gpu in machine.driver.gpus if gpu.instance is None and gpu.total is not None]
    found = {gpu.uuid: _refusals(machine, gpu) for gpu in whole}
    for refusal in dict.fromkeys(one for refusals in found.values() for one in refusals):
        yield AGAINST[refusal.reason](**refusal.facts)
    good = [gpu for gpu in whole if not found[gpu.uuid]]
    if not good:
        return
    listed = machine.cuda.facts.get("listed")
    if listed and (not listed["own"] or listed["held"] is None):  # the driver does not tell what a process holds
        yield AGAINST[why.UNLISTED]()
    else:
        yield _tried(machine, good) if machine.park else NOT_TRIED()


def _refusals(machine: ThisMachine, gpu: Gpu) -> tuple[Refusal, ...]:
    """Return why an idle process of the size that would be tried could not be parked on a GPU."""
    held = (HeldMemory(gpu.uuid or "", SIZE + context_bytes(gpu.total or 0)),)
    return checks.refusals(
        ParkFacts(
            driver=machine.driver.snapshot.driver if machine.driver.snapshot else None,
            open_module=facts.open_module(machine.root / "proc"),
            allow_open_module=machine.allow_open_module,
            architecture=platform.machine(),
            gpus=(gpu._replace(free=gpu.usable),),  # whoever is there now, it would be the process that was there first
            held=held,
            host=facts.host_room(os.getpid(), machine.root / "proc", machine.root / "sys/fs/cgroup"),
            inside=Inside(),
        )
    )


def _tried(machine: ThisMachine, good: Iterable[Gpu]) -> Finding:
    """Park a process on the one of these GPUs that CUDA shows and that has most room, and bring it back."""
    shown = machine.cuda.facts.get("shown", [])
    gpu = max((gpu for gpu in good if gpu.uuid in shown), key=lambda gpu: gpu.free or 0, default=None)
    if gpu is None or (gpu.free or 0) < ROOM or installed() is None:
        return UNTRIED(room_bytes=ROOM)
    size = max(CHUNK, min(SIZE, (gpu.free or 0) // 8))
    answer = child.ask(
        _CODE.format(size=size, allow_open_module=machine.allow_open_module),
        patience=child.IMPORTING + COPYING,
        env={**machine.environ, DEVICES: gpu.uuid or "", GROWTH: "true"},
    )
    return _judged(gpu.label, answer.facts) if answer.facts else ENDED(why=answer.why)


def _judged(gpu: str, told: Mapping[str, Any]) -> Finding:
    """Return what is to be said of a process that has answered; `doctor_child.main` says what it tells."""
    refusals = [why.from_json(one) for one in told["refusals"]]
    if told["step"] == "park":
        return REFUSED(reasons=reasons(refusals), names=_names(refusals))
    if told["held"]:
        return STAYED(gpu=gpu, held_bytes=told["held"])
    if told["step"] == "unpark":
        return (
            CROWDED(gpu=gpu) if why.CANCELLED() in refusals else LOST(reasons=reasons(refusals), names=_names(refusals))
        )
    if not told["same"]:
        return CHANGED(gpu=gpu)
    size, out, back = told["size"], told["out"], told["back"]
    return WORKS(
        gpu=gpu,
        size_bytes=size,
        out_seconds=round(out, 3),
        back_seconds=round(back, 3),
        out_rate_bytes=round(size / max(out, 1e-3)),
        back_rate_bytes=round(size / max(back, 1e-3)),
    )


def _names(refusals: Iterable[Refusal]) -> list[str]:
    """Return the reasons' names; of what the driver has declined, its call and the number of its error."""
    return [
        " ".join(map(str, (one.reason.name, *(one.values if one.reason is why.DECLINED else ())))) for one in refusals
    ]


TITLED = ("Parking", parking)
"""It, after its title, for the doctor's table."""

_ANSWERS: dict[str, Seen] = {
    WORKS.name: "yes", CHANGED.name: "no", STAYED.name: "no", LOST.name: "no", ENDED.name: "no",
    CROWDED.name: "skipped", UNTRIED.name: "skipped", NOT_TRIED.name: "skipped",
}  # fmt: skip
"""The answer that each finding is to whether a process can be parked; any other is a refusal."""
_STRONGEST: tuple[Seen, ...] = ("yes", "no", "refused", "skipped")


def report(machine: ThisMachine, findings: Iterable[Finding]) -> str:
    """Return what was seen of parking as a line that can be sent: without names, paths and data of a user."""
    said: dict[str, Any] = {one.outcome.name: one.facts for one in findings if one.outcome.name.startswith("parking.")}
    works = said.get(WORKS.name, {})
    against = [told.get("names", (name.partition(".")[2],)) for name, told in said.items() if name != WORKS.name]
    label = next((told["gpu"] for told in said.values() if "gpu" in told), None)
    snapshot, version = machine.driver.snapshot, installed()
    return Observation(
        question="parks",
        answer=min((_ANSWERS.get(name, "refused") for name in said), key=_STRONGEST.index, default="skipped"),
        why=tuple(one for names in against for one in names),
        gpu=next((gpu.name for gpu in machine.driver.gpus if label in (None, gpu.label)), None),
        gpus=len(machine.driver.gpus),
        driver=None if snapshot is None else snapshot.driver,
        module="simulated" if machine.simulated else MODULES[facts.open_module(machine.root / "proc")],
        framework=None if version is None else f"tensorflow {version}",
        held=works.get("size_bytes"),
        out=works.get("out_rate_bytes"),
        back=works.get("back_rate_bytes"),
    ).to_line()
