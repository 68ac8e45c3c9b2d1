"""Which GPUs CUDA will show a process, from its environment and NVML's list. Pure: CUDA itself is not called.

Source: CUDA C++ Programming Guide, "CUDA Environment Variables"; NVIDIA MIG User Guide, "CUDA Visible Devices".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfgpu_magic.model.snapshot import Gpu
from tfgpu_magic.policy.policy import GpuRef
from tfgpu_magic.policy.process_state import DEVICES, ORDER


def predict(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the UUIDs of the GPUs that CUDA will show, in its order; None where only CUDA can decide.

    CUDA numbers GPUs fastest first unless it is set to follow the PCI bus, as nvidia-smi does; that matters where GPUs
    differ. With MIG on, what is shown is CUDA's own choice.
    """
    entries = [entry.strip() for entry in environment.get(DEVICES, "all").split(",")]
    if entries[0] in ("", "-1"):
        return ()
    if any(gpu.mig or gpu.instance is not None or gpu.uuid is None for gpu in gpus):
        return None
    uuids = [gpu.uuid for gpu in gpus if gpu.uuid is not None and not gpu.lost]
    if all(entry.startswith("GPU-") for entry in entries):  # their order is the list's own
        return _listed(entries, uuids)
    if any(gpu.lost for gpu in gpus) and DEVICES in environment:
        return None  # CUDA may number those that are left
    alike = len({(gpu.name, gpu.total) for gpu in gpus}) <= 1
    if not alike and environment.get(ORDER) != "PCI_BUS_ID":
        return None
    if DEVICES not in environment:
        return tuple(uuids)
    return _listed(entries, uuids)


def _listed(entries: Sequence[str], uuids: Sequence[str]) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs that a list names, as CUDA reads it."""
    shown: list[str] = []
    for entry in entries:
        uuid = _entry(entry, uuids)
        if uuid is None:
            break  # CUDA stops at the first entry that names no GPU
        if uuid in shown:
            return ()  # CUDA shows nothing when an entry comes twice
        shown.append(uuid)
    return tuple(shown)


def _entry(text: str, uuids: Sequence[str]) -> str | None:
    if text.isascii() and text.isdigit():
        return uuids[int(text)] if int(text) < len(uuids) else None
    if not text.startswith("GPU-"):
        return None
    matches = [uuid for uuid in uuids if uuid.lower().startswith(text.lower())]
    return matches[0] if len(matches) == 1 else None


def variable(gpus: Sequence[Gpu], among: Sequence[Gpu] = ()) -> dict[str, str]:
    """Return the variables that make CUDA show just these GPUs, in this order.

    The GPUs are given by numbers where that is possible, because other libraries read the variable too; by UUIDs for
    MIG instances, and where a lost GPU may shift CUDA's numbers against nvidia-smi's.

    Args:
        gpus: the GPUs to show.
        among: all of the machine's GPUs.
    """
    if not gpus:
        return {DEVICES: "-1"}
    shifted = any(gpu.lost for gpu in among) and all(gpu.uuid for gpu in gpus)
    if all(gpu.instance is None for gpu in gpus) and not shifted:
        return {ORDER: "PCI_BUS_ID", DEVICES: ",".join(str(gpu.index) for gpu in gpus)}
    return {DEVICES: ",".join(str(gpu.uuid) for gpu in gpus)}


def find(ref: GpuRef, gpus: Sequence[Gpu]) -> Gpu | str:
    """Return the GPU that is meant, or as text why there is none."""
    if isinstance(ref, int):
        matches = [gpu for gpu in gpus if gpu.index == ref and gpu.instance is None]
    else:
        same = [gpu for gpu in gpus if ref.lower() in ((gpu.uuid or "").lower(), gpu.label)]
        number = ref.partition("-")[2]
        if not same and number in {str(gpu.index) for gpu in gpus}:
            return f"{ref} may begin the UUID of any GPU. For nvidia-smi's GPU {number}, write {number}."
        matches = same or [gpu for gpu in gpus if (gpu.uuid or "").lower().startswith(ref.lower())]
    if not matches:
        return f"There is no GPU {ref} here; there {_are(gpus)}."
    if len(matches) > 1:
        return f"{ref} may be any of {len(matches)} GPUs; write more of its UUID."
    if matches[0].mig:
        instances = [gpu.label for gpu in gpus if gpu.index == matches[0].index and gpu.instance is not None]
        return f"GPU {ref} is in MIG mode; name an instance of it: {', '.join(instances) or 'it has none'}."
    return matches[0]


def _are(gpus: Sequence[Gpu]) -> str:
    labels = [gpu.label for gpu in gpus]
    if not labels:
        return "are no GPUs"
    return f"is GPU {labels[0]}" if len(labels) == 1 else f"are GPUs {', '.join(labels[:-1])} and {labels[-1]}"
