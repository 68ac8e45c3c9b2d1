"""PyTorch's build for CUDA on the simulated machine: NVIDIA's libraries for it, and its steps in a process there.

NVIDIA's libraries that the machine lacks are made here, of the names that PyTorch looks for: each returns 0 and does
nothing. Where PyTorch asks for a version of a library, the loader wants that beside the names.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import os
import random
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil

import tfgpu_magic
from tests.parking.test_host_memory import host_room
from tests.sizes import MIB
from tfgpu_magic.frameworks import cuda, registry
from tfgpu_magic.parking import host_memory
from tfgpu_magic.parking.arrays import MovedArrays, survey
from tfgpu_magic.parking.frameworks.torch import _of_tensor
from tfgpu_magic.simgpu import Machine, build

LATE = {"libcuda.so.1": rb"\0(cu[A-Z]\w+)", "libnvidia-ml.so.1": rb"\0(nvml\w+)"}
"""The libraries in which PyTorch's own looks for names when it runs, with what those look like in its file."""


def steps() -> dict[str, Any]:
    """Set a limit, fill two GPUs, and take the limit away; return what was found at each step."""
    torch = importlib.import_module("torch")
    kept: list[Any] = []

    def now() -> tuple[int, int]:
        return torch.cuda.current_device(), len(cuda.gpus_in_use())

    def take(mebibytes: int, gpu: int = 0) -> str:
        try:
            kept.append(torch.empty(mebibytes * MIB, dtype=torch.uint8, device=f"cuda:{gpu}"))
        except torch.cuda.OutOfMemoryError as error:
            return "no room" if registry.is_out_of_memory(error) else repr(error)
        return "taken"

    tfgpu_magic.apply("limit 2GiB", frameworks="all")
    found: dict[str, Any] = {"under the limit": [take(1024), take(2048)], "GPU and contexts": now()}
    found["figures"] = [-(one.size // -MIB) for one in registry.figures()[cuda.visible_gpus()[0]]]
    found["GPU and contexts after a look"] = now()
    found["another GPU"] = take(1, gpu=1)
    registry.after_cell()
    found["another GPU after its cell"] = take(2048, gpu=1)
    tfgpu_magic.apply("default", frameworks="all")
    found["without a limit"] = take(2048)
    torch.cuda.get_per_process_memory_fraction(1)
    found["version"] = tuple(int(number) for number in torch.__version__.split(".")[:2])
    return found | {"GPU and contexts after a fraction": now()}


def parked(cycles: int, part: float) -> dict[str, Any]:
    """Fill tensors of every kind on two GPUs with random bytes, park them, and come back; return what was found.

    Beside them there is as much as is a part of the room in host memory.
    """
    torch = importlib.import_module("torch")
    machine = Machine.current()
    assert machine is not None

    def held() -> list[int]:
        return [machine.held(pid=os.getpid(), gpu=gpu.index) for gpu in machine.gpus()]

    side = torch.cuda.Stream("cuda:1")
    tensors: list[Any] = []
    for gpu in ("cuda:0", "cuda:1"):
        base = torch.empty(16 * MIB, dtype=torch.uint8, device=gpu)
        tensors += [base, base[100:5000], base.view(torch.bfloat16), base[: 4 * MIB].view(2 * MIB, 2).t()]
        tensors += [torch.empty(999, dtype=one, device=gpu) for one in (torch.bool, torch.float16, torch.complex64)]
        tensors += [torch.nn.Parameter(torch.empty(500, 70, device=gpu)), torch.empty(0, device=gpu)]
        indices = torch.empty((1, 9), dtype=torch.int64).to(gpu)
        tensors.append(torch.sparse_coo_tensor(indices, torch.empty(9, device=gpu), (9,), check_invariants=False))
        tensors += [torch.empty(1000 + number, device=gpu) for number in range(100)]
    tensors[7].grad = torch.empty_like(tensors[7])
    with torch.cuda.stream(side):
        tensors.append(torch.empty(3 * MIB, dtype=torch.uint8, device="cuda:1"))
    tensors.append(torch.empty(2 * MIB, dtype=torch.uint8))  # stays on the CPU
    fill(tensors)
    while part and survey().leaving < part * host_room():
        tensors.append(torch.empty(128 * MIB, dtype=torch.uint8, device=f"cuda:{len(tensors) % 2}"))
        fill(tensors[-1:])
    storages = [*storages_of(tensors)]

    def streams() -> dict[int, int]:
        there = [(block, segment) for segment in torch.cuda.memory_snapshot() for block in segment["blocks"]]
        at = {block["address"]: segment["stream"] for block, segment in there}
        return {number: at[one.data_ptr()] for number, one in enumerate(storages)}

    before, on, devices = content(tensors), streams(), [one.device for one in storages]
    figures = [held()]
    moves = MovedArrays()
    moves.move_out()
    figures.append(held())
    sizes = {one.nbytes() for one in storages}
    again, this, kept = [], psutil.Process(), []
    for _ in range(cycles):
        moves.move_back(lambda: True, lambda _: None)
        again.append((content(tensors) == before, streams() == on, [one.device for one in storages] == devices))
        moves.move_out()
        host_memory.trim()
        kept.append((this.num_fds(), this.num_threads(), this.memory_info().rss))
    moves.move_back(lambda: True, lambda _: None)
    figures.append(held())
    return {
        "storages": len(storages),
        "sizes": sizes,
        "held": figures,
        "same": set(again),
        "kept": kept,
        "after": content(tensors) == before,
        "current": torch.cuda.current_device(),
    }


def keras() -> bool:
    """Park a Keras model on PyTorch, come back, and go on without the GPU; return whether all values are the same."""
    os.environ["KERAS_BACKEND"] = "torch"
    keras = importlib.import_module("keras")
    model = keras.Sequential([keras.Input((512,)), keras.layers.Dense(512), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    tensors = [one.value for one in (*model.variables, *model.optimizer.variables)]
    fill(tensors)
    before, moves = content(tensors), MovedArrays()
    moves.move_out()
    moves.move_back()
    assert content(tensors) == before
    moves.move_out()
    moves.make_unreadable()
    made, count, _ = moves.in_host_memory(model)
    same = [hashlib.sha256(one.tobytes()).digest() for one in made.values()] == before
    return same and count == len(tensors) and "sequential/dense/kernel" in made


def storages_of(tensors: Iterable[Any]) -> Iterator[Any]:
    """Give the storages on GPUs of tensors, of their gradients, and of their parts."""
    return (one for tensor in tensors for _, one in _of_tensor(tensor))


def fill(tensors: Iterable[Any]) -> None:
    """Fill them with random bytes of their own from the host: nothing is computed here."""
    torch = importlib.import_module("torch")
    for storage in storages_of(tensors):
        storage.copy_(
            torch.frombuffer(bytearray(random.randbytes(storage.nbytes())), dtype=torch.uint8).untyped_storage()
        )


def content(tensors: Iterable[Any]) -> list[bytes]:
    """Return digests of their bytes."""
    there = (one.cpu() for one in storages_of(tensors))
    return [hashlib.sha256((ctypes.c_char * one.nbytes()).from_address(one.data_ptr())).digest() for one in there]


def unreadable() -> list[str]:
    """Park, go on without the GPU, and use what was parked in every way; return the errors."""
    torch = importlib.import_module("torch")
    base = torch.empty(1000, device="cuda")
    view, weight = base[10:], torch.nn.Parameter(base)
    loss = (weight * weight).sum()
    moves = MovedArrays()
    moves.move_out()
    moves.make_unreadable()
    ways: list[Callable[[], Any]] = [
        base.sum, lambda: view + 1, weight.cpu, base.tolist, lambda: repr(base), loss.backward, lambda: base.add_(1),
        lambda: base.view(10, 100) @ base.view(100, 10), lambda: base.fill_(1), lambda: torch.save(base, "/dev/null"),
        base.data_ptr, view.clone, base.double, lambda: torch.add(torch.ones(1000, device="cuda"), 1, out=base),
        lambda: base.untyped_storage().resize_(4000),
    ]  # fmt: skip
    errors = []
    for way in ways:
        try:
            errors.append(f"read {way()}")
        except RuntimeError as error:
            errors.append(str(error).partition("\n")[0])
    return errors


def make(torch: Path, folder: Path) -> None:
    """Make in a folder what the parts of an installed PyTorch need of NVIDIA's libraries."""
    parts = sorted((torch / "lib").glob("lib*.so"))
    headers, symbols = (told(*command, *map(str, parts)) for command in (("readelf", "-d"), ("nm", "-D")))
    wanted = re.findall(r" U ((?:cu|nccl|nv|__cuda)\w+)(?:@+(\S+))?$", symbols, re.MULTILINE)
    [own] = [part.read_bytes() for part in parts if part.name == "libc10_cuda.so"]
    simulated = {library.partition(".so.")[0]: sources for library, sources, _ in build._TARGETS}
    there = build.libraries()
    for library in {*re.findall(r"\[(lib(?:cu|nccl|nv)[\w-]*\.so[.\d]*)\]", headers), *LATE}:
        stem, _, number = library.partition(".so.")
        version = "NVSHMEM" if stem == "libnvshmem_host" else library
        start = stem.removeprefix("lib").lower()
        names = {name for name, of in wanted if of == version or (not of and name.lower().startswith(start))}
        names |= {name.decode() for name in re.findall(LATE.get(library, b"$^"), own)}
        weak = "__attribute__((weak)) int {}(void) {{ return 0; }}\n"  # the simulated machine's own replace these
        (folder / "names.c").write_text("".join(map(weak.format, sorted(names))))
        (folder / "version").write_text(f"{version} {{ global: *; }};\n")
        flags = ["-w", "-fPIC", "-shared", f"-DSOVERSION={number}", f"-Wl,-soname,{library}"]
        flags += [f"-Wl,--version-script={folder / 'version'}"] * any(of == version for _, of in wanted)
        sources = [folder / "names.c", *(build.SOURCES / source for source in simulated.get(stem, ()))]
        linked = [there / one for one in (build.CORE, "libcuda.so.1") if one != library]
        subprocess.run(["cc", *build._FLAGS, *flags, *sources, *linked, "-o", folder / library], check=True)


def told(*command: str) -> str:
    """Return what a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
