"""What a source of figures is: one maker's driver, how it is asked, and what names it. Which there are: sources.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    from tfgpu_magic.monitor.snapshot import Snapshot

    class Reader(Protocol):
        """An open driver, for one look or a look every second. Not thread-safe."""

        def read(self, *, processes: bool = True, graphics: bool = True) -> Snapshot:
            """Ask for all GPUs now. Whatever the driver does, short of hanging, the answer is a snapshot.

            Args:
                processes: whether to ask for the lists of processes, which cost most.
                graphics: whether these include processes that only draw.

            Returns:
                The snapshot. Its `error` says why there is none, and `absent` whether there is no driver or GPU here.
            """

        def close(self) -> None:
            """Let go of the driver; a later `read` starts it again."""


class Source(NamedTuple):
    """One maker's driver. Where a field is left out, nothing is looked for.

    Attributes:
        name: what its interface is called: ``NVML``.
        maker: who makes its GPUs, as their names begin: ``NVIDIA``.
        open: makes a reader, given folders where the driver's library may be. It is called only in processes that may
            hang, and imports what only they need.
        check: the maker's own command that shows whether the driver answers.
        library: the Python module that the reader imports, which child processes are told where to find.
        package: what is installed to have that module.
        files: how the files begin that a process has open while it uses a GPU; without any, every process may.
        devices: patterns of the names below /dev that tell which GPUs a process may open.
        vendor: the maker's number on the PCI bus, as the system writes it: ``0x10de``.
    """

    name: str
    maker: str
    open: Callable[[Iterable[str]], Reader]
    check: str = ""
    library: str = ""
    package: str = ""
    files: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    vendor: str = ""

    @property
    def not_installed(self) -> str:
        """Why the source cannot be asked where its module is missing, and what to do."""
        return f"{self.name} was not asked: {self.library} is not installed here. Run: pip install {self.package}."
