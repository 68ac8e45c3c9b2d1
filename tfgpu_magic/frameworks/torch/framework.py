"""PyTorch as one of the frameworks of this process: its stage, its figures, and its cap on each GPU.

Its allocator grows as it is needed and keeps what it has; a cap is a fraction of the GPU's memory. It is told through
its own function, for which CUDA must run: at once, or when PyTorch starts it. A variable says the same to the programs
that this process starts, as far as it can: one fraction for all GPUs. Sources: PyTorch's "CUDA semantics", "Memory
management"; PyTorch 2.13, `torch/cuda/memory.py`, `torch.Tensor.untyped_storage`; the options of 2.8 to 2.13.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from tfgpu_magic.errors import Refused
from tfgpu_magic.frameworks import cuda, import_hook
from tfgpu_magic.frameworks.array import Array, round_up
from tfgpu_magic.frameworks.base import Framework
from tfgpu_magic.frameworks.counters import Counters
from tfgpu_magic.frameworks.objects import filter_kinds, subclasses
from tfgpu_magic.frameworks.pool import Pool
from tfgpu_magic.frameworks.runtime import RUNTIME
from tfgpu_magic.frameworks.shortage import Shortage, parse_library_error, parse_size
from tfgpu_magic.ground.message import Message, msg, paragraph
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.policy.plan import FrameworkPlan, FrameworkState, fraction_in
from tfgpu_magic.policy.process_state import Stage

OPTIONS, CUDA_OPTIONS = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
"""The variables of the allocator's options; where the second is set, the first is not read."""

FRACTION = "per_process_memory_fraction"
KNOWS_FRACTION = (2, 10)
"""The first release whose options have `FRACTION`, which is an error in those of an older one.

In an older one, reading or setting a fraction makes a context on its GPU, and leaves that as the current one (pytorch
2.6 to 2.9, `CUDACachingAllocator.cpp`: `setMemoryFraction` and `getMemoryFraction` call `SetDevice`).
"""

UNCACHED = "PYTORCH_NO_CUDA_MEMORY_CACHING"
"""The variable, set to anything, with which PyTorch takes each tensor's memory of the driver and heeds no fraction."""

# Errors: PyTorch 2.6 to 2.13, `CUDACachingAllocator.cpp`, `CUDAException.cpp`, `cuda/Exceptions.h`.
# "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.79 GiB of which ...".
_TENSOR = re.compile(
    r"CUDA out of memory\.(?: Tried to allocate (?P<size>[\d.]+ ?\w+)\.?)?(?:\s*GPU (?P<gpu>\d+) has)?", re.IGNORECASE
)
# "Of the allocated memory 5.50 GiB is allocated by PyTorch, and ...".
_IN_USE = re.compile(r"(?P<size>[\d.]+ ?\w+) is allocated by PyTorch")
# "CUDA error: out of memory": the driver's own answer, as when PyTorch starts CUDA.
_DRIVER = re.compile(r"CUDA error: out of memory|CUDA driver error: out of memory|cudaErrorMemoryAllocation")
_LIBRARY = re.compile(r"CUDA error: CU\w+_STATUS|cuDNN error:|valid cuDNN algorithm|find an engine|cusolver error")


def _cuda() -> Any:
    return getattr(sys.modules.get("torch"), "cuda", None)


def _index(device: Any = None) -> int:
    """Return the number of a device in any way to say it: None, 1, ``"cuda:1"``, `torch.device`."""
    if isinstance(device, int):
        return device
    index = None if device is None else sys.modules["torch"].device(device).index
    return int(_cuda().current_device()) if index is None else int(index)


class Torch(Framework):
    """PyTorch as a `Framework`."""

    name = "PyTorch"
    module = package = "torch"
    # "CUDA out of memory. Tried to allocate 2.00 GiB."; "CUDA error: out of memory".
    out_of_memory = re.compile(r"CUDA (error: )?out of memory", re.IGNORECASE)
    words = ("allocated", "reserved", "limit")
    resets = True
    # PyTorch's own functions look for them in the second module, and people in the first. All figures of `torch.cuda`
    # come from the one function, and all its resets of peaks go to the other; `torch.accelerator` asks the allocator by
    # itself: a reset through it is not seen, and what it tells is since the last reset by anybody.
    counters = Counters(
        lambda: [_cuda(), *filter(None, [sys.modules.get("torch.cuda.memory")])],
        "memory_stats_as_nested_dict",
        "reset_peak_memory_stats",
        _index,
    )
    gives_back = True  # what its cache keeps, at any time

    def __init__(self) -> None:
        self._part = FrameworkPlan(framework=self.name)
        self._queued = False
        self._applied: dict[int, tuple[float, float]] = {}
        """The fraction of each GPU that would hold without ours, and ours, by PyTorch's number."""

    def allocator(self) -> str:
        """Return the name of its allocator: ``native``, ``cudaMallocAsync``, ``pluggable``; empty if it is unknown."""
        with contextlib.suppress(Exception):  # it is not imported whole, or is built without CUDA
            return str(_cuda().memory.get_allocator_backend())
        return ""

    def stage(self) -> Stage:
        """Return its stage; while it is being imported, it counts as absent."""
        is_initialized = getattr(_cuda(), "is_initialized", None)
        if is_initialized is None:
            return Stage.ABSENT
        return Stage.READY if is_initialized() else Stage.IMPORTED

    def shortage(self, text: str) -> Shortage | None:
        """Return what an error's text says, in PyTorch's words, of memory that was missing; None where nothing."""
        if found := _TENSOR.search(text):
            size = None if found["size"] is None else parse_size(found["size"])
            in_use = parse_size(told["size"]) if (told := _IN_USE.search(text)) else None
            device = "" if found["gpu"] is None else f"cuda:{found['gpu']}"
            return Shortage(framework=self.name, size=size, device=device, in_use=in_use)
        if _DRIVER.search(text):
            return Shortage(framework=self.name, kind="driver")
        if _LIBRARY.search(text):
            return parse_library_error(self.name, f"cuDNN {text}" if "find an engine" in text else text)
        return None

    def pools(self) -> list[Pool]:
        """Return its pool on each GPU that it has taken memory of, or that a cap is for; microseconds a GPU."""
        module = _cuda()
        found: list[Pool] = []
        if self.stage() is not Stage.READY:
            return found
        for number, uuid in enumerate(cuda.visible_gpus()):  # PyTorch numbers them as CUDA does
            told = self.counters.stats_function(number)
            allocated, reserved = told["allocated_bytes"]["all"], told["reserved_bytes"]["all"]
            limit = self._limit(module, number)
            if reserved["peak"] or limit is not None:
                found.append(
                    Pool(
                        framework=self.name,
                        name=f"cuda:{number}",
                        gpu=uuid,
                        in_use=allocated["current"],
                        peak=max(allocated["peak"], self.counters.earlier_peak(("allocated_bytes", "all"), number)),
                        counted=allocated["peak"],
                        touched=bool(reserved["peak"]),
                        limit=limit,
                        capped=limit is not None,
                        grows=True,
                        releases=True,
                        taken=reserved["current"],
                        most=max(reserved["peak"], self.counters.earlier_peak(("reserved_bytes", "all"), number)),
                    )
                )
        return found

    def reset_peaks(self) -> None:
        """Reset the peaks of every GPU."""
        for number, _ in enumerate(cuda.visible_gpus()):
            self.counters.reset(number)

    def arrays(self, objects: Sequence[object]) -> list[Array]:
        """Return its tensors on GPUs, and their gradients."""
        return _arrays(objects)

    def give_back(self) -> dict[str, int]:
        """Empty its cache; return the bytes that went back, by the UUID of each GPU."""
        before = self.held()
        _cuda().empty_cache()
        now = self.held()
        return {uuid: max(0, size - now.get(uuid, 0)) for uuid, size in before.items()}

    def plan(self, wanted: FrameworkPlan, state: FrameworkState) -> FrameworkPlan:
        """Decide what is done about it. Pure.

        Raises:
            Refused: it has taken more than it is asked to have.
        """
        more = [
            msg(
                "PyTorch has taken {held} of GPU {gpu} already, and is to have {size}. `torch.cuda.empty_cache()` "
                "gives back what it keeps and does not use.",
                held=rounded(held),
                gpu=device.gpu.label,
                size=rounded(sum(device.limits)),
            )
            for device in wanted.devices
            if device.limits and (held := state.held.get(str(device.gpu.uuid), 0)) > sum(device.limits)
        ]
        unmet = [*more, msg("It gets no more.")] if more else []
        environment = _variable(wanted, state)
        if wanted.limits and (heedless := _why_unlimited(state)):
            unmet, more = [heedless, *unmet], [heedless, *more]
            if UNCACHED in state.environment:
                environment[UNCACHED] = None
                unmet.append(msg("It is unset now, which counts if PyTorch has taken no memory yet."))
        if more and state.strict:
            raise Refused(more[0])
        return replace(
            wanted,
            environment=environment,
            takes=wanted.phrase(grows=True) if wanted.growth is not None else "",
            notes=[_LATE] if wanted.limits and len(wanted.devices) > 1 and state.version < KNOWS_FRACTION else [],
            unmet=paragraph(unmet) if unmet else None,
        )

    def configure(self, part: FrameworkPlan) -> None:
        """Set PyTorch's limits: now if it uses CUDA, else when it begins to."""
        self._part = part
        if self.stage() is Stage.READY:
            self._set_all()
        elif part.limits and self.module in sys.modules:
            self._queue()
        elif part.limits:
            import_hook.call_at_import(self._queue, self.module)

    def is_cpu_only(self) -> bool:
        """Return whether the PyTorch that is imported is built for the CPU alone."""
        built = getattr(sys.modules.get("torch"), "version", None)
        return built is not None and not (built.cuda or getattr(built, "hip", None))

    def after_cell(self) -> None:
        """Set the limits of an old PyTorch on GPUs that it began to use since they were last set."""
        if self._part.limits and _makes_context() and self.stage() is Stage.READY:
            self._set_all_at_start(known=self._applied.keys())

    def _queue(self) -> None:
        """Make PyTorch call us when it begins to use CUDA; if it is half imported, this is tried again."""
        if not self._queued:
            _cuda()._lazy_call(self._set_all_at_start)
            self._queued = True

    def _set_all_at_start(self, *, known: Collection[int] = ()) -> None:
        """Do what `_set_all` does, and raise nothing: PyTorch would raise it again at every call of CUDA."""
        try:
            self._set_all(known=known)
        except Exception as error:
            import_hook.warn(f"tfgpu_magic: PyTorch is NOT held to its limit: {error}")

    def _set_all(self, *, known: Collection[int] = ()) -> None:
        """Set the fraction of each GPU that it may take; where one fails, the others are set all the same.

        Args:
            known: the numbers of GPUs to leave as they are.
        """
        module, failed = _cuda(), []
        for number, uuid in enumerate(cuda.visible_gpus()[: module.device_count()]):
            if number in known or (_makes_context() and not _is_used(module, number, uuid)):
                continue
            try:
                with module.device(number) if _makes_context() else contextlib.nullcontext():
                    self._set(module, number, uuid)
            except Exception as error:  # PyTorch's have no common root
                failed.append(error)
        if failed:
            raise failed[0]

    def _set(self, module: Any, number: int, uuid: str) -> None:
        """Set one fraction: what is asked, else the user's own, up to the ceiling; of a new GPU, the smallest."""
        part, now = self._part, self._fraction(module, number)
        fractions = part.fractions
        own, ours = self._applied.get(number, (_users_fraction(now), now))
        if abs(now - ours) > _TOLERANCE:  # it was set since
            own = now
        asked = fractions.get(uuid)
        if asked is None and fractions and uuid not in part.gpus:
            asked = min(fractions.values())
        fraction = own if asked is None else float(asked)
        if uuid in part.ceilings or uuid not in part.gpus:
            fraction = min(fraction, own)
        if fraction < 1 or now < 1:
            module.set_per_process_memory_fraction(fraction, number)
        self._applied[number] = own, fraction

    def _fraction(self, module: Any, number: int) -> float:
        """Return the fraction of a GPU that its allocator may reserve; where it cannot be asked, what we have set."""
        if _makes_context() and cuda.visible_gpus()[number] not in cuda.gpus_in_use():
            return self._applied.get(number, (1.0, 1.0))[1]
        with module.device(number) if _makes_context() else contextlib.nullcontext():
            return min(1.0, float(module.get_per_process_memory_fraction(number)))

    def _limit(self, module: Any, number: int) -> int | None:
        """Return the bytes that its allocator may reserve of a GPU; None where nothing limits it."""
        fraction = self._fraction(module, number)
        return int(fraction * module.get_device_properties(number).total_memory) if fraction < 1 else None


FRAMEWORK = Torch()


_UNIT = 512
"""What its allocator counts in, in bytes."""


def _arrays(objects: Sequence[object]) -> list[Array]:
    """Return the tensors among objects that have memory of a GPU, with their gradients; views share an address."""
    torch: Any = sys.modules["torch"]
    kinds = frozenset(map(id, subclasses(torch.Tensor)))
    found: list[Array] = []
    # Its errors have no common root; one tensor that cannot be asked hides no other.
    unless_it_fails = contextlib.suppress(Exception)
    # A subclass may have code of its user's for every attribute.
    with torch._C.DisableTorchFunctionSubclass():
        for thing in filter_kinds(objects, kinds):
            with unless_it_fails:
                found += _tensors(thing)
    return found


def _tensors(tensor: Any) -> Iterator[Array]:
    if tensor.is_cuda and tensor.untyped_storage().data_ptr():  # which a wrapper of other tensors has not
        yield _array(tensor, tensor, "")
        if tensor.is_leaf and tensor.grad is not None:  # of others PyTorch warns, and has none
            yield _array(tensor, tensor.grad, ".grad")


def _array(thing: object, tensor: Any, part: str) -> Array:
    storage = tensor.untyped_storage()
    return Array(
        thing=thing,
        what="gradient" if part else "tensor",
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        size=round_up(storage.nbytes(), _UNIT),
        device=f"cuda:{tensor.get_device()}",
        address=storage.data_ptr(),
        part=part,
    )


_LATE = msg(
    "PyTorch before 2.10 is held on its `cuda:0` from its start, and on each other GPU from the end of the cell that "
    "first uses it, in a program never. To hold it on one GPU throughout, show only that one: `visible 1`."
)


def _makes_context() -> bool:
    """Return whether the imported PyTorch makes a context on a GPU to read or set its fraction, and stays there."""
    release = re.match(r"(\d+)\.(\d+)", str(getattr(sys.modules.get("torch"), "__version__", "")))
    return release is not None and (int(release[1]), int(release[2])) < KNOWS_FRACTION


def _is_used(module: Any, number: int, uuid: str) -> bool:
    """Return whether a GPU has a context in this process, or is the current one, so that its fraction may be set.

    When PyTorch starts CUDA, that is `cuda:0`: `set_device` starts it first, and only then changes the GPU.
    """
    return uuid in cuda.gpus_in_use() or number == module.current_device()


def _why_unlimited(state: FrameworkState) -> Message | None:
    """Return why PyTorch, as it is configured, ignores limits; None if it does not."""
    if state.allocator == "pluggable":
        return msg("PyTorch allocates through a pluggable allocator, which heeds no limit.")
    uncached = msg("{variable} is set, with which PyTorch heeds no limit.", variable=UNCACHED)
    return uncached if UNCACHED in state.environment else None


def _users_fraction(fraction: float) -> float:
    """Return the fraction that PyTorch would have without us, where it has one from the variable that we set."""
    if abs(fraction - float(_option(os.environ))) > _TOLERANCE:
        return fraction
    return float(_option(RUNTIME.environment_for_children()))


_TOLERANCE = 1e-5
"""The difference up to which fractions are the same: PyTorch keeps one as bytes."""


def _variable(wanted: FrameworkPlan, state: FrameworkState) -> dict[str, str | None]:
    """Return the variable that says it to programs; none where their PyTorch would reject it, or needs none."""
    name = _name(state.environment)
    options = state.environment.get(name, "")
    fractions = replace(wanted, own=_option(state.environment)).beside_own().fractions
    if not fractions or state.version < KNOWS_FRACTION or "cudaMallocAsync" in options:
        return {}
    return {name: _merge_option(options, f"{FRACTION}:{min(fractions.values()):f}")}


def _option(environment: Mapping[str, str]) -> Decimal:
    """Return the fraction that the options in an environment say; 1 without any."""
    found = re.search(rf"\b{FRACTION}\s*:([^,]+)", environment.get(_name(environment), ""))
    return fraction_in(found[1] if found else "")


def _name(environment: Mapping[str, str]) -> str:
    return CUDA_OPTIONS if CUDA_OPTIONS in environment else OPTIONS


def _merge_option(options: str, option: str) -> str:
    """Return the allocator's options with one of them set: they are read whole, and those left out are reset."""
    name = option.partition(":")[0]
    # A list in brackets may have commas: `roundup_power2_divisions:[256:1,512:2]`.
    kept = [one for one in re.split(r",(?![^\[]*\])", options) if one.strip() and one.partition(":")[0].strip() != name]
    return ",".join([*kept, option])
