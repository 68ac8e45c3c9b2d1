"""Compiles the simulator's libraries for a wheel, into one archive that is the same each time.

``python -m scripts._prebuilt FOLDER`` writes it there and prints its path, which hatch_build.py takes from the variable
TFGPU_PREBUILT. The archive is called by its sources and by the C library that it needs; `simgpu/build.py` looks for it.
"""

from __future__ import annotations

import io
import re
import sys
import tarfile
import tempfile
from pathlib import Path

from tfgpu_magic.simgpu.build import SOURCES, compile_into, prebuilt_name


def make(folder: Path) -> Path:
    """Compile, and pack what came of it into a folder; return the archive."""
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(fileobj=packed, mode="w:xz") as archive:
        compile_into(Path(scratch), "-s", f"-ffile-prefix-map={SOURCES}=src", "-Wl,--build-id=none")
        files = sorted(Path(scratch).iterdir())
        needed = b"".join(path.read_bytes() for path in files)
        for path in files:
            about = tarfile.TarInfo(path.name)  # of nobody and no time
            about.size, about.mode = path.stat().st_size, 0o755
            with path.open("rb") as file:
                archive.addfile(about, file)
    glibc = max(tuple(map(int, found.split(b"."))) for found in re.findall(rb"GLIBC_([\d.]+)\0", needed))
    made = folder / f"{prebuilt_name('.'.join(map(str, glibc)))}.tar.xz"
    folder.mkdir(parents=True, exist_ok=True)
    made.write_bytes(packed.getvalue())
    return made


if __name__ == "__main__":
    print(make(Path(sys.argv[1])))
