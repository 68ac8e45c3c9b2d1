"""Whether a process's GPU state can be parked in host memory here: what can be seen of that, or a try, if asked for.

That is made in a process of its own: TensorFlow fills some memory of a GPU, is parked, comes back, and sees whether all
is there. Then it ends at once. Under the open kernel module it is parked again first: there, the end of a process whose
state was brought back, and is not away, has stopped whole machines. `child.ask` kills it if its time is over, and when
the doctor is interrupted.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tfgpu_magic.doctor import child
from tfgpu_magic.doctor.checks.tensorflow import installed
from tfgpu_magic.doctor.finding import Finding, Outcome, Severity
from tfgpu_magic.doctor.machine import ThisMachine
from tfgpu_magic.leases.lease_file import TABLE
from tfgpu_magic.model.report import HeldMemory
from tfgpu_magic.model.snapshot import Gpu
from tfgpu_magic.monitor.driver.look import LOOK_TIMEOUT, look
from tfgpu_magic.parking import checks, facts
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.answers import reasons
from tfgpu_magic.parking.checks import Inside, ParkFacts
from tfgpu_magic.parking.gpu_state import Asker, GpuState
from tfgpu_magic.parking.inside.introspection import keep_nvml, of_process
from tfgpu_magic.parking.observation import MODULES, Observation, Seen
from tfgpu_magic.parking.refusals import Refusal
from tfgpu_magic.parking.transfers import Park, Unpark
from tfgpu_magic.policy.memory import context_bytes
from tfgpu_magic.policy.process_state import DEVICES, GROWTH
from tfgpu_magic.units import BINARY, MIB

__all__ = ["TITLED", "keep_nvml", "main", "report"]

ROOM = 2 * BINARY["GiB"]
"""The bytes that must be free on a GPU before a process is tried there: the others' programs come first."""
SIZE = BINARY["GiB"]  # the most bytes of tensors that the process has, so that the rates mean something
CHUNK = 64 * MIB  # the bytes of one tensor
COPYING = 45.0  # seconds for all that comes after TensorFlow's import
ROOM_TIMEOUT = 20.0  # seconds of them that it waits for room: others may have taken that

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
    "from tfgpu_magic.parking.doctor_check import keep_nvml, main; keep_nvml(); import tensorflow; "
    "main(tensorflow, {size}, allow_open_module={allow_open_module})"
)


def parking(machine: ThisMachine) -> Iterator[Finding]:
    """Tell why nothing can be parked here, or on which GPUs; else try it, if that is wanted."""
    if not machine.works:
        return
    whole = [gpu for gpu in machine.snapshot.gpus if gpu.instance is None and gpu.total is not None]
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
            driver=machine.snapshot.driver,
            open_module=facts.open_module(machine.root / "proc"),
            architecture=platform.machine(),
            gpus=(gpu._replace(free=gpu.usable),),  # whoever is there now, it would be the process that was there first
            held=held,
            host=facts.host_room(os.getpid(), machine.root / "proc", machine.root / "sys/fs/cgroup"),
            inside=Inside(allow_open_module=machine.allow_open_module),
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
    """Return what is to be said of a process that has answered; `main` says what it tells."""
    refusals = [why.from_json(one) for one in told["refusals"]]
    cause = {"reasons": reasons(refusals), "names": _names(refusals)}
    if told["step"] == "park":
        return REFUSED(**cause)
    if told["held"]:
        return STAYED(gpu=gpu, held_bytes=told["held"])
    if told["step"] == "unpark":
        return CROWDED(gpu=gpu) if why.CANCELLED() in refusals else LOST(**cause)
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


# --- in the process that is tried ---


def main(tensorflow: Any, size: int, *, allow_open_module: bool) -> None:
    """Park this process with so many bytes of tensors, print what came of it, and end.

    That is the `step` that it has come to, and `refusals` of it; the `size` that it held, what the driver said that it
    `held` meanwhile, the seconds `out` and `back`, whether all is the `same`.
    """
    state = GpuState(os.getpid())
    status = 1
    try:
        print(json.dumps(_answer(state, tensorflow, size, allow_open_module=allow_open_module)), flush=True)
        status = 0
    except Exception:
        traceback.print_exc()
    if state.known is not None and facts.open_module() is not False:
        Park(state, None).park()
    os._exit(status)


def _answer(state: GpuState, tensorflow: Any, size: int, *, allow_open_module: bool) -> dict[str, Any]:
    kept = [_on_gpu(tensorflow, os.urandom(CHUNK)) for _ in range(size // CHUNK)]
    before = _digests(kept)
    gone = Park(state, of_process(allow_open_module=allow_open_module)).park()
    if not gone.done or gone.entry is None:
        return {"step": "park", "refusals": list(map(why.to_json, gone.refusals))}
    held = sum(look(LOOK_TIMEOUT).held_by(os.getpid()).values())
    answer = {"size": gone.entry.size, "out": gone.seconds, "held": held}
    end = time.monotonic() + ROOM_TIMEOUT
    back = Unpark(state, TABLE, asker=Asker(wanted=lambda: time.monotonic() < end)).unpark()
    if not back.done:
        return answer | {"step": "unpark", "refusals": list(map(why.to_json, back.refusals))}
    return answer | {"step": "compare", "refusals": [], "back": back.seconds, "same": _digests(kept) == before}


def _on_gpu(tensorflow: Any, content: bytes) -> Any:
    """Return a tensor on the GPU that has this content."""
    with tensorflow.device("CPU:0"):
        here = tensorflow.io.decode_raw(content, tensorflow.uint8)
    with tensorflow.device("GPU:0"):
        return tensorflow.identity(here)


def _digests(tensors: Iterable[Any]) -> list[bytes]:
    return [hashlib.sha256(tensor.numpy()).digest() for tensor in tensors]


# --- what is told of it ---

TITLED = ("Parking", parking)  # it, after its title, for the doctor's table

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
    snapshot, version = machine.snapshot, installed()
    return Observation(
        question="parks",
        answer=min((_ANSWERS.get(name, "refused") for name in said), key=_STRONGEST.index, default="skipped"),
        why=tuple(one for names in against for one in names),
        gpu=next((gpu.name for gpu in machine.snapshot.gpus if label in (None, gpu.label)), None),
        gpus=len(machine.snapshot.gpus),
        driver=snapshot.driver,
        module="simulated" if snapshot.simulated else MODULES[facts.open_module(machine.root / "proc")],
        framework=None if version is None else f"tensorflow {version}",
        held=works.get("size_bytes"),
        out=works.get("out_rate_bytes"),
        back=works.get("back_rate_bytes"),
    ).to_line()
