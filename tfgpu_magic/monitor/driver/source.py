"""The interface of a source of figures: one maker's driver, its reader and its names. `sources` lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
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
        open: makes a reader from folders where the driver's library may be. It is called only in processes that may
            hang, and imports what only they need.
        check: the maker's own command that shows whether the driver answers.
        files: prefixes of the files that a process has open while it uses a GPU; without any, every process may.
        devices: patterns of the names below /dev from which it follows which GPUs a process may open.
        vendor: the maker's number on the PCI bus, as the system writes it: ``0x10de``.
    """

    name: str
    maker: str
    open: Callable[[Iterable[str]], SourceReader]
    check: str = ""
    files: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    vendor: str = ""
