"""Sentences about parking: what is done, for whom is waited and how long, why not, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tfgpu_magic.model.phrases import plain, seconds, words
from tfgpu_magic.model.said import in_a_row, say
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.messages import ParkOutcome, Progress, Room
from tfgpu_magic.parking.refusals import Refusal
from tfgpu_magic.units import rounded

WITHOUT = (
    "To go on without the GPU, run `%tf_gpu unpark --without-gpu`: cells run then, and what is in host memory can be "
    "saved."
)
WITHOUT_SOON = "To go on without the GPU, interrupt, and run `%tf_gpu unpark --without-gpu`."

STEPS = {
    "begins": "",
    "checks": "Checking whether it can be parked.",
    "locks": "Waiting for what the GPU was given to do.",
    "copies out": "Parking: {size} of GPU memory go to host memory{time}.",
    "copies to disk": "Parking: {size} of GPU memory go to disk.",
    "settles": "Waiting for the end of what a process that made the driver's calls has begun.",
    "waits": "Waiting for room. {first}{then} To stop waiting, interrupt: nothing is lost, and it stays parked.",
    "takes room": "Taking the room.",
    "copies back": "Bringing {size} of GPU memory back{time}.",
}
"""What is said of each step of a parking or a return."""

_MOST_HOLDERS = 3


def progress(progress: Progress, names: Mapping[int, str]) -> str:
    """Say how a parking or a return gets on; the processes that it names are called as `names` has them by pid."""
    size, time = rounded(progress.size), "" if progress.seconds is None else f", about {seconds(progress.seconds)}"
    lines: list[str] = [] if progress.trouble is None else [reason(progress.trouble)]
    lines += [_room(room, names) for room in progress.rooms if room.short or room.free is None]
    lines += [f"{_called(pid, names)} is first." for pid in progress.ahead]
    first = " ".join(lines) or "It is not its turn yet."
    then = f" Then {size} come back{time}." if time else ""
    return STEPS[progress.step].format(size=size, time=time, first=first, then=then)


def parked(outcome: ParkOutcome, here: str) -> str:
    """Say that this process is parked."""
    away, them = _away(outcome)
    took = f" That took {seconds(outcome.seconds)}." if outcome.seconds else ""
    return _with_notes(f"Parked: {away}.{took} The next cell of this {here} brings {them} back.", outcome)


def other_parked(outcome: ParkOutcome, name: str) -> str:
    """Say that another notebook is parked."""
    away, them = _away(outcome)
    return _with_notes(f"{plain(name)} is parked: {away}. Its next cell brings {them} back.", outcome)


def not_parked(refusals: Sequence[Refusal], name: str) -> str:
    """Say why a process is not parked."""
    return f"{plain(name, longest=60)} is not parked. {reasons(refusals)}"


def can_be_parked(outcome: ParkOutcome, here: str) -> str:
    """Say that nothing speaks against it, and what is to be known before."""
    return _with_notes(f"This {here} can be parked: nothing speaks against it now.", outcome)


def back(outcome: ParkOutcome, waited: float) -> str:
    """Say that it is back."""
    what = "what it held of the GPUs" if outcome.entry is None else f"{rounded(outcome.entry.size)} of GPU memory"
    return f"Back: {what}, after {seconds(waited)}."


def other_back(outcome: ParkOutcome, name: str) -> str:
    """Say that another process is back."""
    size = "" if outcome.entry is None else f" with {rounded(outcome.entry.size)}"
    return f"{plain(name)} is back on the GPU{size}."


def interrupted(here: str, *, parked: bool) -> str:
    """Say what became of a wait that was interrupted."""
    if parked:
        return f"Interrupted: this {here} is still parked, and nothing is lost. {WITHOUT}"
    return f"Interrupted: this {here} is back on the GPU meanwhile. Run it again."


def not_back(refusals: Sequence[Refusal], here: str) -> str:
    """Say why a process does not come back."""
    if not refusals or why.CANCELLED() in refusals:
        return (
            f"This {here} is parked, and stays so until a cell finds room; `%tf_gpu` in another notebook shows who has "
            f"it. {WITHOUT}"
        )
    return f"This {here} is parked, and does not come back. {reasons(refusals)} {WITHOUT}"


def without(here: str) -> str:
    """Say that a process goes on without its GPU state."""
    return (
        f"This {here} goes on without the GPU: cells run, and what is in host memory can be saved. TensorFlow refuses "
        "what it would do with the GPU; anything else that uses it may wait for ever, or end the process. "
        "`%tf_gpu unpark` tries to bring the GPU memory back."
    )


def withheld(here: str) -> str:
    """Say in a framework's error why it uses no GPU."""
    return (
        f"The GPU memory of this {here} is parked, and it goes on without: `%tf_gpu unpark` tries to bring it back. "
        'What needs no GPU runs in `with tf.device("CPU:0"):`.'
    )


def lost(here: str) -> str:
    """Warn in the first cell that runs when the GPU state is lost."""
    return (
        f"tfgpu_magic: the GPU state of this {here} is lost. Save what is in host memory and restart: what uses the "
        "GPU here is refused by TensorFlow, and else may wait for ever, or end this process."
    )


def reason(refusal: Refusal) -> str:
    """Say one reason, and what to do."""
    return say(refusal.reason.sentence, **words(refusal.facts))


def reasons(refusals: Iterable[Refusal]) -> str:
    """Say why, and what to do: a sentence or two for each reason."""
    return in_a_row(map(reason, refusals))


def _with_notes(text: str, outcome: ParkOutcome) -> str:
    return f"{text} {reasons(outcome.notes)}".rstrip()


def _away(outcome: ParkOutcome) -> tuple[str, str]:
    """Say what is in host memory or on disk now, and with which pronoun to go on; its size may not be known."""
    if outcome.entry is None:
        return "what it held of the GPUs is in host memory now", "it"
    where = "on disk" if outcome.entry.disk else "in host memory"
    return f"{rounded(outcome.entry.size)} of GPU memory are {where} now", "them"


def _room(room: Room, names: Mapping[int, str]) -> str:
    if not room.label:
        return "The GPU that it was on is not there now."
    held = [f"{_called(pid, names)} holds {rounded(size)}" for pid, size in room.holders[:_MOST_HOLDERS]]
    more = len(room.holders) - len(held)
    by = f" ({', '.join(held)}{f', and {more} more' if more > 0 else ''})" if held else ""
    return f"GPU {room.label}: {rounded(room.needed)} must be free, and {rounded(room.free)} are{by}."


def _called(pid: int, names: Mapping[int, str]) -> str:
    return plain(names.get(pid, f"pid {pid}"))
