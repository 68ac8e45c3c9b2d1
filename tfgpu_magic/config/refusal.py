"""What cannot be enforced for other reasons than memory, in words: what is wrong, and every way out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tfgpu_magic.config.policy import Growth, Limit, Pick, Policy, Split, Visible, amount_text
from tfgpu_magic.config.state import ALLOCATOR, Kernel, Stage
from tfgpu_magic.errors import Refused, TooLate
from tfgpu_magic.monitor.snapshot import Gpu
from tfgpu_magic.units import rounded


def if_too_late(words: Policy, kernel: Kernel) -> None:
    """Refuse when nothing that is set now would be enforced."""
    restart = f"Restart and apply:   %tf_gpu {words} --restart      (variables are lost)"
    if kernel.broken:
        raise TooLate(
            "TensorFlow failed to start on a GPU that had no room left, and may hang for good if it is tried again in "
            f"this kernel. Leave it alone, and restart.\n{restart}"
        )
    since = f", {kernel.since}" if kernel.since else ""
    if kernel.stage is Stage.READY:
        raise TooLate(
            f"TensorFlow is already using the GPUs in this kernel{since}, so its memory cannot be changed any more.\n"
            f"{restart}"
        )
    if kernel.stage is Stage.POISONED:
        raise TooLate(
            f"TensorFlow's GPU allocators exist already in this kernel{since}: something like "
            "device_lib.list_local_devices(), tf.test.is_gpu_available() or a v1 Session made them. TensorFlow would "
            f"accept the setting and not enforce it.\n{restart}"
        )


def if_frozen(wanted: Sequence[Gpu], shown: Sequence[str], *, ordered: bool) -> None:
    """Refuse GPUs, or an order of them, that CUDA cannot be told of any more."""
    hidden = [gpu.label for gpu in wanted if gpu.uuid not in shown]
    if hidden:
        raise TooLate(
            f"Not applied. CUDA is running in this kernel already, and does not show it GPU {', '.join(hidden)}. "
            f"A restart does:   %tf_gpu visible {_list(wanted)} --restart      (variables are lost)"
        )
    places = [shown.index(str(gpu.uuid)) for gpu in wanted]
    if ordered and places != sorted(places):
        raise TooLate(
            "Not applied. CUDA is running in this kernel already, so the order of its GPUs is fixed, and TensorFlow "
            f"ignores the order of a list. A restart:   %tf_gpu visible {_list(wanted)} --restart      "
            "(variables are lost)"
        )


def if_too_few(request: Pick, enough: Sequence[Gpu], given: Sequence[Gpu]) -> None:
    """Refuse to pick more GPUs than there are with so much free."""
    if len(enough) >= request.count:
        return
    what = f"{request.count} GPU{'s' * (request.count > 1)}"
    need = f" with {amount_text(request.need)} free, and room for CUDA's context," if request.need is not None else ""
    have = "".join(f"\n  GPU {gpu.label}: {gpu.error or rounded(gpu.free) + ' free'}" for gpu in given)
    raise Refused(f"Not applied. {what}{need} cannot be had now; {len(enough)} can.{have or ' There is no GPU here.'}")


def of_two_minds(requests: Iterable[Growth | Limit | Split]) -> Refused:
    """Growth on some GPUs and not on others: TensorFlow has one setting for all."""
    requests = list(requests)
    capped = "; ".join(f"{r} --grow" for r in requests if isinstance(r, Limit | Split) and not r.grow)
    taken = "; ".join(str(r).removesuffix(" --grow") for r in requests if not isinstance(r, Growth))
    ways = [way for way in (capped, taken and f"default` and then `%tf_gpu {taken}") if way]
    return Refused(
        f"Not applied. `{'; '.join(map(str, requests))}`: memory growth is one setting for all GPUs of a process, and "
        "a limit without --grow switches it off on every one of them. Say "
        + ", or ".join(f"`%tf_gpu {way}`" for way in ways)
        + "."
    )


def skipped(gpus: Sequence[Gpu], seen: Sequence[Gpu]) -> Refused:
    """TensorFlow leaves a visible GPU out, and then counts the others wrongly."""
    names = ", ".join(gpu.label for gpu in gpus)
    rest = [gpu for gpu in seen if gpu not in gpus]
    return Refused(
        f"Not applied. TensorFlow does not use GPU {names} (too few multiprocessors, or too old), and mistakes the "
        f"numbers of the others while it can see it. Hide it first:   %tf_gpu visible {_list(rest) or 'none'}"
    )


def async_allocator() -> Refused:
    """cuda_malloc_async takes a limit for the size above which it gives memory back."""
    return Refused(
        f"Not applied. {ALLOCATOR}=cuda_malloc_async is set, and that allocator keeps to no limit. Unset it before "
        f"TensorFlow's first op:   %env {ALLOCATOR}=\nWithout a limit it can stay: it grows as needed by itself."
    )


def without_gpus(policy: Policy, why: str, *, absent: bool) -> str:
    """What to say where no GPU is known: a note where that does no harm.

    Raises:
        Refused: the words name GPUs, or need to know them.
    """
    named = [r for r in policy if isinstance(r, Pick | Visible) or getattr(r, "gpu", None) is not None]
    named = [r for r in named if not (isinstance(r, Visible) and not r.gpus)]
    if not absent:
        named += [r for r in policy if isinstance(r, Limit | Split)]
    if named:
        raise Refused(f"Not applied. {why} So `{named[0]}` cannot be set.")
    return f"{why} TensorFlow will run on the CPU." if absent else f"{why} What is free was not checked."


def _list(gpus: Sequence[Gpu]) -> str:
    return ",".join(gpu.label if gpu.instance is None else str(gpu.uuid) for gpu in gpus)
