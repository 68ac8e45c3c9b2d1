"""Refusals for other reasons than memory, which `fit` has: each says what is wrong, and every way out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tfgpu_magic.errors import Refused, TooLate
from tfgpu_magic.ground.message import IPYTHON, MAGIC, Line, Message, join, join_lines, msg, paragraph
from tfgpu_magic.ground.snapshot import Gpu
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.policy.policy import Memory, Policy, Request
from tfgpu_magic.policy.process_state import ALLOCATOR, ASYNC, DEVICE_CAP, DEVICES, ProcessState, Stage
from tfgpu_magic.policy.requests.default import Default
from tfgpu_magic.policy.requests.growth import NO_LIMIT


def too_late(policy: Policy, process: ProcessState, beside: Callable[[], Policy | None] | None = None) -> TooLate:
    """Return the error for a process that is fixed: only a new one could enforce the policy.

    Args:
        policy: what is asked.
        process: this process.
        beside: returns the nearest policy that fits in a new process beside this one; None if none does.
    """
    if process.forked:
        return TooLate(
            msg(
                "This process was forked from one in which CUDA was running, and CUDA cannot be used in it. Start the "
                "program anew, or fork it before TensorFlow lists or uses a GPU."
            ),
            verdict=None,
        )
    here, since = process.host, f", {process.since}" if process.since else ""
    changed = ""
    if process.broken:
        why = msg(
            "TensorFlow failed to start on a GPU that had no room left, and may hang for good if it is tried again in "
            "this {here}. Leave it alone, and restart.",
            here=here,
        )
    elif process.stage is Stage.READY:
        why = msg(
            "TensorFlow is already using {devices} in this {here}{since}, so its memory cannot be changed any more.",
            devices="the GPUs" if process.tensorflow_sees else "its devices",
            here=here,
            since=since,
        )
        if process.changed:
            changed = f"\n`{process.asked}` was set, and it was changed since: {'; '.join(process.changed)}."
    else:
        why = msg(
            "Something in this {here} holds a CUDA context{since}, and TensorFlow does not know of it. Either "
            "TensorFlow's GPU allocators exist already (device_lib.list_local_devices(), tf.test.is_gpu_available() "
            "and v1 Sessions make them), and it would accept the setting and not enforce it; or another library{name} "
            "uses the GPU. Nobody can tell which, so nothing is promised.",
            here=here,
            since=since,
            name=f" ({process.neighbour})" if process.neighbour else "",
        )
    error = _too_late(msg("{why}{changed}", why=why, changed=changed), policy, process, beside=beside)
    error.verdict = None
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
        why = msg(
            "CUDA is running in this {here} already, and does not show it GPU {gpus}.",
            here=process.host,
            gpus=", ".join(hidden),
        )
        raise _too_late(why, policy, process)
    places = [shown.index(str(gpu.uuid)) for gpu in wanted]
    if ordered and places != sorted(places):
        why = msg(
            "CUDA is running in this {here} already, so the order of its GPUs is fixed, and TensorFlow ignores the "
            "order of a list.",
            here=process.host,
        )
        raise _too_late(why, policy, process)


def framework_too_late(framework: str, since: str | None, policy: Policy, process: ProcessState) -> TooLate:
    """Return the error for a framework beside TensorFlow that uses a GPU, and takes what it takes to the end."""
    why = msg(
        "{framework} is already using a GPU in this {here}{since}, so its memory cannot be changed any more.",
        framework=framework,
        here=process.host,
        since=f", {since}" if since else "",
    )
    return _too_late(why, policy, process, framework)


def shown_to_others(policy: Policy, process: ProcessState) -> TooLate:
    """Return the error for GPUs that can still be hidden from TensorFlow, and not from other frameworks."""
    why = msg(
        "CUDA is running in this {here} already, and only TensorFlow can be kept from GPUs now.", here=process.host
    )
    return _too_late(why, policy, process, "any framework")


def hidden_for_good(policy: Policy, process: ProcessState) -> TooLate:
    """Return the error for GPUs that `%tf_gpu` hid before CUDA was started, and that stay hidden."""
    why = msg("CUDA is running in this {here} already, and was told before not to show all GPUs.", here=process.host)
    return _too_late(why, policy, process)


def if_it_cannot_be_shown(gpus: Sequence[Gpu]) -> None:
    """Refuse a list of GPUs that CUDA does not show as it is.

    Raises:
        Refused: a GPU is named twice, or a MIG instance beside others.
    """
    labels = [gpu.label for gpu in gpus]
    if len(set(labels)) < len(labels):
        raise Refused(msg("A GPU is named twice ({gpus}); CUDA would then show none.", gpus=", ".join(labels)))
    if len(gpus) > 1 and any(gpu.instance is not None for gpu in gpus):
        raise Refused(msg("A process can use one MIG instance, and nothing beside it. Name one."))


def no_gpu(why: Message, rest: Policy) -> Refused:
    """Return the error for a GPU that is not there, with the rest of the policy as a way out."""
    return Refused(why.with_tries("\nFor those that are:   ", [rest] if rest.requests else []))


def hidden(gpu: Gpu, seen: Sequence[Gpu]) -> Refused:
    """Return the error for a request about a GPU that TensorFlow is not to see."""
    whole = [other for other in seen if other.instance is None and gpu.instance is None]  # beside a MIG instance, none
    return Refused(
        msg("GPU {gpu} is hidden from TensorFlow, so nothing can be set for it.", gpu=gpu.label).with_tries(
            " Show it first:   ", [f"visible {_list([*whole, gpu])}"]
        )
    )


def finds_no_gpu(labels: Iterable[str]) -> Message:
    """Return why TensorFlow uses the CPU where CUDA shows it these GPUs, and its list has none of them."""
    return msg(
        "TensorFlow finds no GPU, though CUDA shows it GPU {gpus}: it uses the CPU, and no limit is needed. `tfgpu "
        "doctor` looks for the cause, such as a library of CUDA's that is missing.",
        gpus=", ".join(labels),
    )


def gone(labels: Sequence[str], value: str | None, ours: str | None) -> Refused:
    """Return the error for GPUs that CUDA no longer shows: what its variable is now, and what we have set it to."""
    why = msg("CUDA does not show this process GPU {gpus}, and did when it was asked.", gpus=", ".join(labels))
    if value in (None, ours):
        return Refused(paragraph((why, "Restart, and say it again.")))
    way = msg(
        "{variable} is {value} now: restart, and take out the line that sets it, or run it before `{magic}`.",
        magic=MAGIC,
        variable=DEVICES,
        value=repr(value),
    )
    return Refused(paragraph((why, way)))


def growth_on_some() -> Refused:
    """Return the error for growth on some GPUs, set through `tf.config`: TensorFlow's first op would reject it."""
    return Refused(
        msg(
            "set_memory_growth was called for some of these GPUs and not for others; TensorFlow's first op would fail "
            "on that."
        ).with_tries(" First say one of these, for all of them:\n  ", ["growth", "growth off"])
    )


def order_unknown(variable: str) -> Refused:
    """Return the error for a pick among GPUs whose list is unknown, as CUDA did not answer in time."""
    return Refused(
        msg(
            "{variable} was not set by {magic}, and CUDA did not say in time which GPUs that leaves, so none of them "
            "can be picked. Say it again, or name GPUs: `{line}`.",
            magic=MAGIC,
            line=Line("visible 0"),
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
        msg(
            "`{policy}`: memory growth is one setting for all GPUs of a process, and a limit without --grow switches "
            "it off on every one of them.",
            policy="; ".join(map(str, memory)),
        ).with_tries("\nSay one of:\n  ", [*([capped] if grows else []), taken])
    )


def skipped(gpus: Sequence[Gpu], seen: Sequence[Gpu]) -> Refused:
    """Return the error for visible GPUs that TensorFlow leaves out: it then numbers the others wrongly."""
    names = ", ".join(gpu.label for gpu in gpus)
    rest = [gpu for gpu in seen if gpu not in gpus]
    return Refused(
        msg(
            "TensorFlow does not use GPU {gpus} (too few multiprocessors beside the others, or too old for its "
            "build), and mistakes the numbers of the others while it can see it.",
            gpus=names,
        ).with_tries(" Hide it first:   ", [f"visible {_list(rest) or 'none'}"])
    )


def async_allocator() -> Refused:
    """Return the error for limits with cuda_malloc_async, which takes one for the size above which it frees memory."""
    return Refused(
        join_lines(
            (
                msg(
                    "{set} is set, and that allocator keeps to no limit. Unset it before TensorFlow's first op:   "
                    "{line}",
                    set=f"{ALLOCATOR}={ASYNC}",
                    line=Line(f"{ALLOCATOR}=", "setting"),
                ),
                "Without a limit it can stay: it grows as needed by itself.",
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

    def way(kept: Iterable[Memory]) -> Policy:
        return Policy((Default(), *rest, *kept))

    return Refused(
        msg("`{policy}`: {why}", policy="; ".join(map(str, memory)), why=NO_LIMIT).with_tries(
            "\nSay one of:\n  ",
            [
                way(request for request in memory if request.releases),
                way(request.growing(on=True) for request in memory if request.limited),
            ],
        )
    )


def without_pools(gpus: Sequence[Gpu], seen: Sequence[Gpu]) -> Refused:
    """Return the error for GPUs on which CUDA has no memory pools: TensorFlow would end the process there."""
    rest = [gpu for gpu in seen if gpu not in gpus]
    return Refused(
        msg(
            "GPU {gpus} is too old for CUDA's memory pools, which --release needs, and TensorFlow would end this "
            "process at its first op.",
            gpus=", ".join(gpu.label for gpu in gpus),
        ).with_tries("\nSay one of:\n  ", ["growth", *([f"visible {_list(rest)}; growth --release"] if rest else [])])
    )


def capped(wanted: int, cap: str) -> Refused:
    """Return the error for limits above TensorFlow's undocumented cap, which holds whatever the limits are."""
    return Refused(
        msg(
            "{variable}={cap} is set, and TensorFlow then takes no more than {cap} MiB of any GPU. {wanted} are asked "
            "for. Unset it before TensorFlow's first op:   {line}",
            line=Line(f"{DEVICE_CAP}=0", "setting"),
            variable=DEVICE_CAP,
            cap=cap,
            wanted=rounded(wanted),
        )
    )


def without_gpus(policy: Policy, why: str, *, absent: bool) -> Message:
    """Return a note for a policy where no GPU is known.

    Raises:
        Refused: its requests name GPUs, or depend on their figures.
    """
    named = [request for request in policy if request.names_gpus]
    if not absent:
        named += [request for request in policy.memory if request.limited]
    if named:
        raise Refused(paragraph((why, msg("So `{request}` cannot be set.", request=named[0]))))
    return paragraph((why, "TensorFlow will run on the CPU." if absent else "What is free was not checked."))


def _list(gpus: Sequence[Gpu]) -> str:
    return ",".join(gpu.label for gpu in gpus)


def _too_late(
    why: Message,
    policy: Policy,
    process: ProcessState,
    framework: str = "",
    beside: Callable[[], Policy | None] | None = None,
) -> TooLate:
    """Return the error with the ways to a process in which it is not too late; the arguments are `_restart`'s."""
    return TooLate(why.with_next(_restart(policy, process, framework, beside)))


def _restart(
    policy: Policy,
    process: ProcessState,
    framework: str = "",
    beside: Callable[[], Policy | None] | None = None,
) -> Message:
    """Return the ways to a process in which it is not too late, a line each.

    Args:
        policy: what is asked.
        process: this process.
        framework: the one for which it is too late, where all are asked; empty where only TensorFlow is.
        beside: as `too_late` has it.
    """
    if process.host == "cell":
        return msg("\nSay it above the cell:   {line}", line=Line(f"isolate {policy}", "above"))
    if process.host == "program" and framework:
        return msg(
            '\nIn the program, before the first operation of {framework}:   tfgpu_magic.apply("{policy}", '
            'frameworks="all")',
            framework=framework,
            policy=policy,
        )
    cell = None if beside is None else beside()
    if process.host == "program":
        way = f'\nIn the program, before TensorFlow\'s first operation:   tfgpu_magic.apply("{policy}")'
        call = f'\nOr for one function:   @tfgpu_magic.isolated(policy="{cell}")   (this program keeps what it holds)'
        return join("", [way, call if cell is not None else ""])
    kernel = process.host == "kernel"
    anew = "Restart and apply: " if kernel else "Leave IPython, start it again and say first: "
    lines = [(anew, Line(str(policy), "try" if kernel else "line", restarts=kernel), "variables are lost")]
    if cell is not None:
        lines.append(
            ("Or run one cell: ", Line(f"isolate {cell}", "above"), f"this {process.host} keeps what it holds")
        )
    width = max(len(IPYTHON.line(line)) for _, line, _ in lines)
    return join(
        "",
        (
            msg("\n{lead}  {line}{gap}   ({cost})", lead=f"{lead:<{len(anew)}}", line=line, gap=gap, cost=cost)
            for lead, line, cost in lines
            for gap in [" " * (width - len(IPYTHON.line(line)))]
        ),
    )
