"""Asks PyTorch's build for CUDA what a limit does to it, on a simulated machine; `scripts/torch` has the environment.

NVIDIA's libraries that the machine lacks are made here, of the names that PyTorch looks for: each returns 0 and does
nothing. Where PyTorch asks for a version of a library, the loader wants that beside the names.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from scripts._scratch import scratch
from tfgpu_magic.simgpu import Machine, build

LATE = {"libcuda.so.1": rb"\0(cu[A-Z]\w+)", "libnvidia-ml.so.1": rb"\0(nvml\w+)"}
"""The libraries in which PyTorch's own looks for names when it runs, with what those look like in its file."""

QUESTIONS = """
import json, torch, tfgpu_magic
from tfgpu_magic.frameworks import registry
from tfgpu_magic.frameworks import cuda

def now():
    return torch.cuda.current_device(), len(cuda.contexts())

def take(size, gpu=0):
    try:
        kept.append(torch.empty(size << 20, dtype=torch.uint8, device=f"cuda:{gpu}"))
    except torch.cuda.OutOfMemoryError as error:
        return registry.out_of_memory(error) and "no room"
    return "taken"

kept, found = [], {}
tfgpu_magic.apply("limit 2GiB", frameworks="all")
found["a limit holds from the first use on"] = (take(1024), take(2048)) == ("taken", "no room")
found["it moves no current GPU and makes no context"] = now() == (0, 1)
figures = registry.figures()[cuda.shown()[0]]
found["the figures are PyTorch's own"] = [one.size >> 20 for one in figures] == [1024, 1024, 1024, 2047]
found["a look moves no current GPU and makes no context"] = now() == (0, 1)
taken = take(1, gpu=1)
registry.after_cell()
found["another GPU is held from the end of the cell that used it"] = (taken, take(2048, gpu=1)) == ("taken", "no room")
tfgpu_magic.apply("default", frameworks="all")
found["without a limit it takes more"] = take(2048) == "taken"
torch.cuda.get_per_process_memory_fraction(1)
old = [int(number) for number in torch.__version__.split(".")[:2]] < [2, 10]
found["its own reading of a fraction moves the current GPU before 2.10, and not since"] = (now()[0] == 1) == old
print(json.dumps(found))
"""


def main() -> None:
    """Make the libraries, ask, and print the answers; the exit status is 1 where one is wrong."""
    [torch] = importlib.util.find_spec("torch").submodule_search_locations  # type: ignore[union-attr, misc]
    with scratch() as folder, Machine.create("2x8GiB") as machine:
        make(sorted(Path(torch, "lib").glob("lib*.so")), Path(folder))
        env = {**os.environ, **machine.environ()}
        env["LD_LIBRARY_PATH"] = f"{folder}:{env['LD_LIBRARY_PATH']}"
        done = subprocess.run([sys.executable, "-c", QUESTIONS], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    answers: dict[str, bool] = json.loads(done.stdout)
    for question, answer in answers.items():
        print(f"{'yes' if answer else 'NO':4}{question}")
    sys.exit(not all(answers.values()))


def make(parts: list[Path], folder: Path) -> None:
    """Make in a folder what the parts of PyTorch need of NVIDIA's libraries."""
    headers, symbols = (told(*command, *map(str, parts)) for command in (("readelf", "-d"), ("nm", "-D")))
    wanted = re.findall(r" U (cu\w+|nccl\w+|__cuda\w+)(?:@+(\S+))?$", symbols, re.MULTILINE)
    [own] = [part.read_bytes() for part in parts if part.name == "libc10_cuda.so"]
    simulated, there = {library: sources for library, sources, _ in build._TARGETS}, build.libraries()
    for library in {*re.findall(r"\[(lib(?:cu|nccl|nv)[\w-]*\.so[.\d]*)\]", headers), *LATE}:
        start, _, version = library.removeprefix("lib").partition(".so.")
        names = {name for name, of in wanted if of == library or (not of and name.startswith(start))}
        names |= {name.decode() for name in re.findall(LATE.get(library, b"$^"), own)}
        if library in simulated:
            names -= set(re.findall(r" T (\w+)", told("nm", "-D", str(there / library))))
        (folder / "names.c").write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in sorted(names)))
        (folder / "version").write_text(f"{library} {{ global: *; }};\n")
        flags = ["-w", "-fPIC", "-shared", f"-DSOVERSION={version}", f"-Wl,-soname,{library}"]
        flags += [f"-Wl,--version-script={folder / 'version'}"] * any(of == library for _, of in wanted)
        sources = [folder / "names.c", *(build.SOURCES / source for source in simulated.get(library, ()))]
        linked = [there / one for one in (build.CORE, "libcuda.so.1") if one != library]
        subprocess.run(["cc", *build._FLAGS, *flags, *sources, *linked, "-o", folder / library], check=True)


def told(*command: str) -> str:
    """Return what a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
