"""What a process inherits besides environment and directory: a worker process takes it from its caller."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_LIMITS = sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")})
_STATUS = Path("/proc/self/status")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherited:
    """What the children of a process inherit.

    Attributes:
        mask: the mask of the modes of files; None where the system does not report it.
        limits: the soft and the hard limit of each resource.
        processors: the CPUs that it may run on.
        nice: its niceness, setpriority(2).
        key: the key by which it authenticates to managers of `multiprocessing`; None where that is not imported.
        package: the package that the program's main module is in, for its relative imports.
        file: the main module's file; None in a notebook.
        module: the main module's name where the program was run by it.
    """

    mask: int | None = None
    limits: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    processors: frozenset[int] = frozenset()
    nice: int = 0
    key: bytes | None = field(default=None, repr=False)
    package: str | None = None
    file: str | None = None
    module: str | None = None


def here() -> Inherited:
    """Return what the children of this process inherit."""
    main, processes = sys.modules["__main__"], sys.modules.get("multiprocessing.process")
    file = getattr(main, "__file__", None)
    return Inherited(
        mask=_mask(),
        limits={limit: resource.getrlimit(limit) for limit in _LIMITS},
        processors=frozenset(os.sched_getaffinity(0)),
        nice=os.getpriority(os.PRIO_PROCESS, 0),
        key=None if processes is None else bytes(processes.current_process().authkey),
        package=getattr(main, "__package__", None),
        file=str(Path(file).absolute()) if isinstance(file, str) else None,
        module=getattr(getattr(main, "__spec__", None), "name", None),
    )


def take(inherited: Inherited) -> None:
    """Give this process what another's children inherit, as far as it may, and a new, empty main module."""
    time.tzset()  # for the environment, which is new too
    if inherited.mask is not None:
        os.umask(inherited.mask)
    for limit, values in inherited.limits.items():
        if values != resource.getrlimit(limit):
            _limit(limit, *values)
    with contextlib.suppress(OSError):  # this process may use none of these CPUs any more
        os.sched_setaffinity(0, inherited.processors)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, inherited.nice)
    if inherited.key is not None:
        from multiprocessing import current_process

        current_process().authkey = inherited.key
    sys.modules["__main__"] = _main(inherited)


def _mask() -> int | None:
    with contextlib.suppress(OSError):
        found = re.search(r"^Umask:\s*(\d+)$", _STATUS.read_text(), re.MULTILINE)
        return int(found[1], 8) if found else None
    return None


def _limit(limit: int, soft: int, hard: int) -> None:
    try:
        resource.setrlimit(limit, (soft, hard))
    except (OSError, ValueError):  # a process without privileges cannot raise the hard limit
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, (soft, resource.getrlimit(limit)[1]))


def _main(inherited: Inherited) -> ModuleType:
    """Return a main module; from its file and name, `multiprocessing` makes it in processes that it starts."""
    main: Any = ModuleType("__main__")
    main.__package__ = inherited.package
    if inherited.file is not None:
        main.__file__ = inherited.file
    if inherited.module is not None:
        main.__spec__ = ModuleSpec(inherited.module, None, origin=inherited.file)
    return main  # type: ignore[no-any-return]
