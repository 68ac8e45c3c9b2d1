"""The sources of figures: what each maker's driver is called, the files by which it shows, and which module reads it.

Nothing is read here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Protocol

    from tfgpu_magic.model.snapshot import Snapshot

    class SourceReader(Protocol):
        """An open driver, for one reading or a reading every second. Not thread-safe."""

        def read(self, *, processes: bool = True, graphics: bool = True) -> Snapshot:
            """Read all GPUs now. Whatever the driver does, short of hanging, the result is a snapshot.

            Args:
                processes: whether to read the lists of processes, which cost most.
                graphics: whether these include processes that only draw.

            Returns:
                The snapshot. Its `error` says why there is none, and `absent` whether there is no driver or GPU here.
            """

        def close(self) -> None:
            """Close the driver; a later `read` opens it again."""


class Source(NamedTuple):
    """One maker's driver. A field that is left out turns off what it is for.

    Attributes:
        name: the name of its interface: ``NVML``.
        maker: the maker of its GPUs, as their names begin: ``NVIDIA``.
        reader: the class of its readers, by name: ``package.module:Class``. It is made from folders where the driver's
            library may be.
        check: the maker's own command that shows whether the driver answers.
        files: prefixes of the files that a process has open while it uses a GPU; without any, every process may.
        computing: prefixes of those among them that only who computes has open.
        devices: patterns of the names below /dev from which it follows which GPUs a process may open.
        vendor: the maker's number on the PCI bus, as the system writes it: ``0x10de``.
    """

    name: str
    maker: str
    reader: str
    check: str = ""
    files: tuple[str, ...] = ()
    computing: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    vendor: str = ""

    def open(self, folders: Iterable[str]) -> SourceReader:
        """Return a reader, whose module is imported now: only a process that may hang calls this.

        Args:
            folders: where else to look for the driver's library, if the system does not find it.
        """
        module, _, name = self.reader.partition(":")
        opened: SourceReader = getattr(import_module(module), name)(folders)
        return opened


SOURCES = (
    Source(
        name="NVML",
        maker="NVIDIA",
        reader="tfgpu_magic.monitor.driver.nvml:NvmlReader",
        check="nvidia-smi",
        # On servers and desktops, on Jetson, on WSL.
        files=("/dev/nvidia", "/dev/nvhost", "/dev/nvmap", "/dev/nvgpu", "/dev/dxg"),
        computing=("/dev/nvidia-uvm", "/dev/dxg"),
        devices=("nvidia[0-9]*", "nvidiactl", "dxg", "nvidia-caps/*"),
        vendor="0x10de",  # pci_ids.h
    ),
)
"""Every source; GPUs are numbered in this order."""


def product(name: str) -> str:
    """Return the name of a GPU without its maker's."""
    for source in SOURCES:
        name = name.removeprefix(f"{source.maker} ")
    return name


def names() -> str:
    """Return the sources' names for a message: ``NVML``."""
    return " or ".join(source.name for source in SOURCES)


def makers() -> str:
    """Return the makers' names for a message: ``NVIDIA``."""
    return " or ".join(source.maker for source in SOURCES)


def checks() -> str:
    """Return the commands that show whether a driver answers, for a message: ``nvidia-smi``."""
    return " or ".join(source.check for source in SOURCES if source.check)
