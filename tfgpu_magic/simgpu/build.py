"""Compiles the C sources in `src`, once for each version of them, or unpacks what a wheel has; returns the folder."""

import hashlib
import logging
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

from tfgpu_magic.errors import SimulatorError

SOURCES = Path(__file__).parent / "src"
CORE = "libtfgpusim.so"
NEIGHBOUR = "tfgpusim-neighbour"
PYTHON = "python"
"""The folder in that of the libraries that is put on PYTHONPATH."""

COMPILE = "TFGPU_SIMGPU_COMPILE"
"""If it is set, the simulated machine is compiled although the wheel has it compiled."""

_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-pthread")
_JAX_PLUGIN = Path(__file__).with_name("jax_plugin.py")
_LIBRARY = ("-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-z,defs")

# The files to make: each with its sources, and the earlier files that it is linked with.
_TARGETS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (CORE, ("machine.c", "limits.c", "faults.c", "control.c"), ()),
    ("libnvidia-ml.so.1", ("nvml.c", "nvml_device.c", "nvml_figures.c"), (CORE,)),
    (
        "libcuda.so.1",
        (
            "cuda.c",
            "cuda_init.c",
            "cuda_visible.c",
            "cuda_device.c",
            "cuda_account.c",
            "cuda_memory.c",
            "cuda_pointer.c",
            "cuda_pool.c",
            "cuda_virtual.c",
            "cuda_context.c",
            "cuda_copy.c",
            "cuda_work.c",
            "cuda_graph.c",
        ),
        (CORE,),
    ),
    (NEIGHBOUR, ("neighbour.c",), ("libcuda.so.1", CORE)),
    ("libcudart.so.12", ("cudart.c",), ("libcuda.so.1",)),
    ("libcublas.so.12", ("blas.c",), ("libcuda.so.1",)),
    ("libcublasLt.so.12", ("blaslt.c",), ("libcuda.so.1",)),
    ("libcudnn.so.8", ("cudnn.c",), ("libcuda.so.1",)),
    ("libcudnn.so.9", ("cudnn.c",), ("libcuda.so.1",)),
    ("libnccl.so.2", ("nccl.c",), ("libcuda.so.1",)),
    ("libcufft.so.11", ("fft.c",), ("libcuda.so.1",)),
    ("libcusolver.so.11", ("solver.c",), ("libcuda.so.1",)),
    ("libcusparse.so.12", ("sparse.c",), ()),
)


@cache
def libraries() -> Path:
    """Return the folder of the stand-in libraries, making them if this version never was.

    Raises:
        SimulatorError: there is no C compiler, or it fails, or there is no folder for the result.
    """
    if prebuilt := prebuilt_in(Path(__file__).parent):
        try:
            return _make_once(sources(), partial(_unpack, prebuilt))
        except Exception:  # this Python may lack lzma, or the archive be cut short
            logging.getLogger(__name__).debug("%s cannot be unpacked", prebuilt, exc_info=True)
    return _make_once(_digest(os.environ.get("CC"), sources()), compile_into)


def _make_once(version: str, make: Callable[[Path], None]) -> Path:
    """Return the folder of a version of the libraries, making them in a draft of it if there is none."""
    for parent in _caches():
        folder = parent / f"simgpu-{version}"
        if (folder / CORE).exists():
            return folder
        try:
            parent.mkdir(parents=True, exist_ok=True)
            draft = Path(tempfile.mkdtemp(prefix="building-", dir=parent))
        except OSError:
            continue
        try:
            make(draft)
            plugins = draft / PYTHON / "jax_plugins"  # a namespace package, which has no __init__.py
            plugins.mkdir(parents=True)
            shutil.copyfile(_JAX_PLUGIN, plugins / "tfgpu_simulated.py")
            draft.chmod(0o755)
            return _publish(draft, folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    raise SimulatorError("there is nowhere to keep the simulator's libraries. Set XDG_CACHE_HOME to a folder of yours.")


def prebuilt_in(folder: Path) -> Path | None:
    """Return the archive of the libraries that a wheel has, if it is of just these sources and for this machine.

    Args:
        folder: where it is looked for, by its name: `prebuilt-SOURCES-MACHINE-glibc-VERSION.tar.xz`. What is of other
            sources is never used.
    """
    if os.environ.get(COMPILE) or sys.platform != "linux":
        return None
    library, version = platform.libc_ver()
    for archive in folder.glob(f"{prebuilt_name('*')}.tar.xz"):
        floor = archive.name.removesuffix(".tar.xz").rpartition("-")[2]
        if library == "glibc" and _numbers(version) >= _numbers(floor):
            return archive
    return None


def prebuilt_name(glibc: str) -> str:
    """Return what an archive of these sources is called, without its ending.

    Args:
        glibc: the version of the C library that the libraries in it need.
    """
    return f"prebuilt-{sources()}-{platform.machine()}-glibc-{glibc}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


def _unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as opened:
        # An older 3.10 or 3.11 knows no filters; what is in the archive is ours.
        opened.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        opened.extractall(folder)  # noqa: S202


def sources() -> str:
    """Return what changes with the sources of the libraries, and with how they are compiled."""
    files = [(path.name, path.read_bytes()) for path in (*sorted(SOURCES.iterdir()), _JAX_PLUGIN)]
    return _digest(_FLAGS, _LIBRARY, _TARGETS, platform.machine(), files)


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _caches() -> Iterator[Path]:
    """Yield folders for the libraries: the user's cache, then a private folder in the temporary one."""
    yield Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "tfgpu_magic"
    private = Path(tempfile.gettempdir()) / f"tfgpu_magic-simgpu-{os.getuid()}"
    try:
        private.mkdir(mode=0o700, exist_ok=True)
        about = private.lstat()
    except OSError:
        return
    # A folder there may be another user's trap: code is loaded from it.
    if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o077:
        yield private


def compile_into(folder: Path, *flags: str) -> None:
    """Compile the libraries.

    Args:
        folder: where they come.
        flags: for the compiler, besides the usual ones.

    Raises:
        SimulatorError: there is no C compiler, or it fails.
    """
    compiler = shlex.split(os.environ.get("CC") or "cc")
    for target, sources, linked in _TARGETS:
        command = [
            *compiler,
            *_FLAGS,
            *flags,
            *(_LIBRARY if ".so" in target else ()),
            *_version_of(target),
            "-o",
            str(folder / target),
        ]
        command += [str(SOURCES / source) for source in sources]
        command += [str(folder / library) for library in linked]
        command += ["-Wl,-rpath,$ORIGIN", f"-Wl,-soname,{target}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise SimulatorError(
                f"the simulated GPU machine is made with a C compiler, and {compiler[0]!r} could not be run "
                f"({error.strerror}). Install one (Debian and Ubuntu: apt install gcc libc6-dev; Fedora: dnf install "
                "gcc; conda: conda install gcc) or name yours in CC."
            ) from error
        if done.returncode:
            raise SimulatorError(
                f"{compiler[0]} could not make the simulated GPU machine's {target}:\n{done.stderr.strip()}\n"
                "It needs a C11 compiler and the C library's headers (Debian and Ubuntu: apt install gcc libc6-dev)."
            )


def _version_of(target: str) -> list[str]:
    """Return the flag for a source that makes two versions of a library: SOVERSION is the number at the name's end."""
    version = target.rpartition(".so.")[2]
    return [f"-DSOVERSION={version}"] if version.isdecimal() else []


def _publish(draft: Path, folder: Path) -> Path:
    """Move the finished draft to its place, or return what another process put there meanwhile."""
    try:
        draft.rename(folder)
    except OSError:
        if not (folder / CORE).exists():
            raise
    return folder
