"""PyTorch's build for CUDA on the simulated machine: NVIDIA's libraries for it, and its steps in a process there.

NVIDIA's libraries that the machine lacks are made here, of the names that PyTorch looks for: each returns 0 and does
nothing. Where PyTorch asks for a version of a library, the loader wants that beside the names.
"""

from __future__ import annotations

import importlib
import re
import subprocess
from pathlib import Path
from typing import Any

import tfgpu_magic
from tests.sizes import MIB
from tfgpu_magic.frameworks import cuda, registry
from tfgpu_magic.simgpu import build

LATE = {"libcuda.so.1": rb"\0(cu[A-Z]\w+)", "libnvidia-ml.so.1": rb"\0(nvml\w+)"}
"""The libraries in which PyTorch's own looks for names when it runs, with what those look like in its file."""


def steps() -> dict[str, Any]:
    """Set a limit, fill two GPUs, and take the limit away; return what was found at each step."""
    torch = importlib.import_module("torch")
    kept: list[Any] = []

    def now() -> tuple[int, int]:
        return torch.cuda.current_device(), len(cuda.contexts())

    def take(mebibytes: int, gpu: int = 0) -> str:
        try:
            kept.append(torch.empty(mebibytes * MIB, dtype=torch.uint8, device=f"cuda:{gpu}"))
        except torch.cuda.OutOfMemoryError as error:
            return "no room" if registry.out_of_memory(error) else repr(error)
        return "taken"

    tfgpu_magic.apply("limit 2GiB", frameworks="all")
    found: dict[str, Any] = {"under the limit": [take(1024), take(2048)], "GPU and contexts": now()}
    found["figures"] = [-(one.size // -MIB) for one in registry.figures()[cuda.shown()[0]]]
    found["GPU and contexts after a look"] = now()
    found["another GPU"] = take(1, gpu=1)
    registry.after_cell()
    found["another GPU after its cell"] = take(2048, gpu=1)
    tfgpu_magic.apply("default", frameworks="all")
    found["without a limit"] = take(2048)
    torch.cuda.get_per_process_memory_fraction(1)
    found["version"] = tuple(int(number) for number in torch.__version__.split(".")[:2])
    return found | {"GPU and contexts after a fraction": now()}


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
