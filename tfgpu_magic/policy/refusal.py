"""Refusals for other reasons than memory, which `fit` has: each says what is wrong, and every way out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tfgpu_magic.errors import Refused, TooLate
from tfgpu_magic.model.said import in_a_row, in_lines, say
from tfgpu_magic.model.snapshot import Gpu
from tfgpu_magic.policy.policy import Memory, Policy, Request
from tfgpu_magic.policy.process_state import ALLOCATOR, ASYNC, DEVICE_CAP, DEVICES, ProcessState, Stage
from tfgpu_magic.policy.requests.default import Default
from tfgpu_magic.policy.requests.growth import NO_LIMIT
from tfgpu_magic.policy.word import RESTART
from tfgpu_magic.units import rounded


def too_late(policy: Policy, process: ProcessState, beside: Callable[[], Policy | None] | None = None) -> TooLate:
    """Return the error for a process that is fixed: only a new one could enforce the policy.

    Args:
        policy: what is asked.
        process: this process.
        beside: returns the nearest policy that fits in a new process beside this one; None if none does.
    """
    if process.forked:
        return TooLate(
            say(
                "This process was forked from one in which CUDA was running, and CUDA cannot be used in it. Start the "
                "program anew, or fork it before TensorFlow lists or uses a GPU."
            ),
            verdict="",
        )
    here, since = process.here, say(", {since}", since=process.since) if process.since else ""
    changed = ""
    if process.broken:
        why = say(
            "TensorFlow failed to start on a GPU that had no room left, and may hang for good if it is tried again in "
            "this {here}. Leave it alone, and restart.",
            here=here,
        )
    elif process.stage is Stage.READY:
        why = say(
            "TensorFlow is already using {devices} in this {here}{since}, so its memory cannot be changed any more.",
            devices=say("the GPUs") if process.tensorflow_sees else say("its devices"),
            here=here,
            since=since,
        )
        if process.changed:
            changed = f"\n`{process.asked}` was set, and it was changed since: {'; '.join(process.changed)}."
    else:
        why = say(
            "Something in this {here} holds a CUDA context{since}, and TensorFlow does not know of it. Either "
            "TensorFlow's GPU allocators exist already (device_lib.list_local_devices(), tf.test.is_gpu_available() "
            "and v1 Sessions make them), and it would accept the setting and not enforce it; or another library{name} "
            "uses the GPU. Nobody can tell which, so nothing is promised.",
            here=here,
            since=since,
            name=f" ({process.neighbour})" if process.neighbour else "",
        )
    error = _too_late(why, policy, process, beside=beside)
    error.verdict, error.more = "", f"{changed}{error.more}"
    return error


def if_frozen(
    wanted: Sequence[Gpu], shown: Sequence[str], policy: Policy, process: ProcessState, *, ordered: bool
) -> None:
    """Refuse GPUs, or an order of them, that CUDA can no longer be made to show.

    Raises:
        TooLate: a new process could show them.
    """
    hidden = [gpu.label for gpu in wanted if gpu.uuid not in shown]
    if hidden:
        why = say(
            "CUDA is running in this {here} already, and does not show it GPU {gpus}.",
            here=process.here,
            gpus=", ".join(hidden),
        )
        raise _too_late(why, policy, process)
    places = [shown.index(str(gpu.uuid)) for gpu in wanted]
    if ordered and places != sorted(places):
        why = say(
            "CUDA is running in this {here} already, so the order of its GPUs is fixed, and TensorFlow ignores the "
            "order of a list.",
            here=process.here,
        )
        raise _too_late(why, policy, process)


def framework_too_late(framework: str, since: str | None, policy: Policy, process: ProcessState) -> TooLate:
    """Return the error for a framework beside TensorFlow that uses a GPU, and takes what it takes to the end."""
    why = say(
        "{framework} is already using a GPU in this {here}{since}, so its memory cannot be changed any more.",
        framework=framework,
        here=process.here,
        since=say(", {since}", since=since) if since else "",
    )
    return _too_late(why, policy, process, framework)


def shown_to_others(policy: Policy, process: ProcessState) -> TooLate:
    """Return the error for GPUs that can still be hidden from TensorFlow, and not from other frameworks."""
    why = say(
        "CUDA is running in this {here} already, and only TensorFlow can be kept from GPUs now.", here=process.here
    )
    return _too_late(why, policy, process, "any framework")


def hidden_for_good(policy: Policy, process: ProcessState) -> TooLate:
    """Return the error for GPUs that `%tf_gpu` hid before CUDA was started, and that stay hidden."""
    why = say("CUDA is running in this {here} already, and was told before not to show all GPUs.", here=process.here)
    return _too_late(why, policy, process)


def if_it_cannot_be_shown(gpus: Sequence[Gpu]) -> None:
    """Refuse a list of GPUs that CUDA does not show as it is.

    Raises:
        Refused: a GPU is named twice, or a MIG instance beside others.
    """
    labels = [gpu.label for gpu in gpus]
    if len(set(labels)) < len(labels):
        raise Refused(say("A GPU is named twice ({gpus}); CUDA would then show none.", gpus=", ".join(labels)))
    if len(gpus) > 1 and any(gpu.instance is not None for gpu in gpus):
        raise Refused(say("A process can use one MIG instance, and nothing beside it. Name one."))


def no_gpu(why: str, rest: Policy) -> Refused:
    """Return the error for a GPU that is not there, with the rest of the policy as a way out."""
    return Refused(why, lead="\nFor those that are:   ", ways=[str(rest)] if rest.requests else [])


def hidden(gpu: Gpu, seen: Sequence[Gpu]) -> Refused:
    """Return the error for a request about a GPU that TensorFlow is not to see."""
    whole = [other for other in seen if other.instance is None and gpu.instance is None]  # beside a MIG instance, none
    return Refused(
        say("GPU {gpu} is hidden from TensorFlow, so nothing can be set for it.", gpu=gpu.label),
        lead=" Show it first:   ",
        ways=[f"visible {_list([*whole, gpu])}"],
    )


def finds_no_gpu(labels: Iterable[str]) -> str:
    """Return why TensorFlow uses the CPU where CUDA shows it these GPUs, and its list has none of them."""
    return say(
        "TensorFlow finds no GPU, though CUDA shows it GPU {gpus}: it uses the CPU, and no limit is needed. `tfgpu "
        "doctor` looks for the cause, such as a library of CUDA's that is missing.",
        gpus=", ".join(labels),
    )


def gone(labels: Sequence[str], value: str | None, ours: str | None) -> Refused:
    """Return the error for GPUs that CUDA no longer shows: what its variable is now, and what we have set it to."""
    why = say("CUDA does not show this process GPU {gpus}, and did when it was asked.", gpus=", ".join(labels))
    if value in (None, ours):
        return Refused(in_a_row((why, say("Restart, and say it again."))))
    way = say(
        "{variable} is {value} now: restart, and take out the line that sets it, or run it before `%tf_gpu`.",
        variable=DEVICES,
        value=repr(value),
    )
    return Refused(in_a_row((why, way)))


def growth_on_some() -> Refused:
    """Return the error for growth on some GPUs, set through `tf.config`: TensorFlow's first op would reject it."""
    return Refused(
        say(
            "set_memory_growth was called for some of these GPUs and not for others; TensorFlow's first op would fail "
            "on that."
        ),
        lead=" First say one of these, for all of them:\n  ",
        ways=["growth", "growth off"],
    )


def order_unknown(variable: str) -> Refused:
    """Return the error for a pick among GPUs whose list is unknown, as CUDA did not answer in time."""
    return Refused(
        say(
            "{variable} was not set by %tf_gpu, and CUDA did not say in time which GPUs that leaves, so none of them "
            "can be picked. Say it again, or name GPUs: `%tf_gpu visible 0`.",
            variable=f"{DEVICES}={variable!r}",
        )
    )


def growth_must_agree(policy: Policy, together: Policy, memory: Sequence[Memory]) -> Refused:
    """Return the error for growth on some GPUs and not on others: TensorFlow has one setting for all.

    Args:
        policy: what is asked now.
        together: the same after what was asked before.
        memory: the requests of `together` that are about memory and count.
    """

    def growing(requests: Iterable[Request]) -> list[Request]:
        return [r.growing(on=True) if isinstance(r, Memory) and r.limited else r for r in requests]

    def at_once(requests: Iterable[Request]) -> list[Request]:
        kept = [r for r in requests if not isinstance(r, Memory) or r.limited]
        return [r.growing(on=False) if isinstance(r, Memory) else r for r in kept]

    before = [r for r in memory if r.limited and not r.grows and r not in policy.requests]
    capped = Policy(tuple(growing([*before, *policy])))
    taken = Policy((Default(), *at_once(together.requests)))
    grows = all(request.grows for request in memory if not request.limited)
    return Refused(
        say(
            "`{policy}`: memory growth is one setting for all GPUs of a process, and a limit without --grow switches "
            "it off on every one of them.",
            policy="; ".join(map(str, memory)),
        ),
        lead="\nSay one of:\n  ",
        ways=[str(way) for way in (*([capped] if grows else []), taken)],
    )


def skipped(gpus: Sequence[Gpu], seen: Sequence[Gpu]) -> Refused:
    """Return the error for visible GPUs that TensorFlow leaves out: it then numbers the others wrongly."""
    names = ", ".join(gpu.label for gpu in gpus)
    rest = [gpu for gpu in seen if gpu not in gpus]
    return Refused(
        say(
            "TensorFlow does not use GPU {gpus} (too few multiprocessors beside the others, or too old for its "
            "build), and mistakes the numbers of the others while it can see it.",
            gpus=names,
        ),
        lead=" Hide it first:   ",
        ways=[f"visible {_list(rest) or 'none'}"],
    )


def async_allocator() -> Refused:
    """Return the error for limits with cuda_malloc_async, which takes one for the size above which it frees memory."""
    return Refused(
        in_lines(
            (
                say(
                    "{set} is set, and that allocator keeps to no limit. Unset it before TensorFlow's first op:   %env "
                    "{variable}=",
                    set=f"{ALLOCATOR}={ASYNC}",
                    variable=ALLOCATOR,
                ),
                say("Without a limit it can stay: it grows as needed by itself."),
            )
        )
    )


def release_with_limits(together: Policy, memory: Sequence[Memory]) -> Refused:
    """Return the error for memory that is to be given back, and limits beside it.

    Args:
        together: what is asked now, after what was asked before.
        memory: the requests of `together` that are about memory and count.
    """
    rest = tuple(request for request in together if not isinstance(request, Memory))

    def way(kept: Iterable[Memory]) -> str:
        return str(Policy((Default(), *rest, *kept)))

    return Refused(
        say("`{policy}`: {why}", policy="; ".join(map(str, memory)), why=NO_LIMIT),
        lead="\nSay one of:\n  ",
        ways=[
            way(request for request in memory if request.releases),
            way(request.growing(on=True) for request in memory if request.limited),
        ],
    )


def without_pools(gpus: Sequence[Gpu], seen: Sequence[Gpu]) -> Refused:
    """Return the error for GPUs on which CUDA has no memory pools: TensorFlow would end the process there."""
    rest = [gpu for gpu in seen if gpu not in gpus]
    return Refused(
        say(
            "GPU {gpus} is too old for CUDA's memory pools, which --release needs, and TensorFlow would end this "
            "process at its first op.",
            gpus=", ".join(gpu.label for gpu in gpus),
        ),
        lead="\nSay one of:\n  ",
        ways=["growth", *([f"visible {_list(rest)}; growth --release"] if rest else [])],
    )


def capped(wanted: int, cap: str) -> Refused:
    """Return the error for limits above TensorFlow's undocumented cap, which holds whatever the limits are."""
    return Refused(
        say(
            "{variable}={cap} is set, and TensorFlow then takes no more than {cap} MiB of any GPU. {wanted} are asked "
            "for. Unset it before TensorFlow's first op:   %env {variable}=0",
            variable=DEVICE_CAP,
            cap=cap,
            wanted=rounded(wanted),
        )
    )


def without_gpus(policy: Policy, why: str, *, absent: bool) -> str:
    """Return a note for a policy where no GPU is known.

    Raises:
        Refused: its requests name GPUs, or depend on their figures.
    """
    named = [request for request in policy if request.names_gpus]
    if not absent:
        named += [request for request in policy.memory if request.limited]
    if named:
        raise Refused(in_a_row((why, say("So `{request}` cannot be set.", request=named[0]))))
    more = say("TensorFlow will run on the CPU.") if absent else say("What is free was not checked.")
    return in_a_row((why, more))


def _list(gpus: Sequence[Gpu]) -> str:
    return ",".join(gpu.label for gpu in gpus)


def _too_late(
    why: str,
    policy: Policy,
    process: ProcessState,
    framework: str = "",
    beside: Callable[[], Policy | None] | None = None,
) -> TooLate:
    """Return the error with the ways to a process in which it is not too late; the arguments are `_restart`'s."""
    error = TooLate(why, more=_restart(policy, process, framework, beside))
    error.restarts = f"{policy} {RESTART}" if process.host == "kernel" else ""
    return error


def _restart(
    policy: Policy,
    process: ProcessState,
    framework: str = "",
    beside: Callable[[], Policy | None] | None = None,
) -> str:
    """Return the ways to a process in which it is not too late, as lines of text.

    Args:
        policy: what is asked.
        process: this process.
        framework: the one for which it is too late, where all are asked; empty where only TensorFlow is.
        beside: as `too_late` has it.
    """
    if process.host == "cell":
        return f"\nSay it above the cell:   %%tf_gpu isolate {policy}"
    if process.host == "program" and framework:
        return (
            f"\nIn the program, before the first operation of {framework}:   "
            f'tfgpu_magic.apply("{policy}", frameworks="all")'
        )
    cell = None if beside is None else beside()
    if process.host == "program":
        way = f'\nIn the program, before TensorFlow\'s first operation:   tfgpu_magic.apply("{policy}")'
        call = f'\nOr for one function:   @tfgpu_magic.isolated(policy="{cell}")   (this program keeps what it holds)'
        return way if cell is None else way + call
    anew, flag = (
        ("Restart and apply: ", f" {RESTART}")
        if process.host == "kernel"
        else ("Leave IPython, start it again and say first: ", "")
    )
    lines = [(anew, f"%tf_gpu {policy}{flag}", "variables are lost")]
    if cell is not None:
        lines.append(("Or run one cell: ", f"%%tf_gpu isolate {cell}", f"this {process.host} keeps what it holds"))
    width = max(len(words) for _, words, _ in lines)
    return "".join(f"\n{lead:<{len(anew)}}  {words:<{width}}   ({cost})" for lead, words, cost in lines)
