"""What a program inherits from the process that starts it: a fork of the fork server gets it as calls, with its setup.

Source: fork(2) and execve(2) on what a process keeps; proc(5), `Umask`, as umask(2) can read only what it changes.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from multiprocessing import current_process
from pathlib import Path
from types import ModuleType
from typing import Any

from tfgpu_magic.frameworks.runtime import RUNTIME, adopt
from tfgpu_magic.ground import process_kind


def inheritance(environment: Mapping[str, str]) -> tuple[Callable[[], object], ...]:
    """Return calls that make another process as this one is, with further environment variables.

    Raises:
        FileNotFoundError: the working directory was removed.
    """
    try:
        directory = str(Path.cwd())
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, "The working directory was removed. Change to one that exists") from None
    main, processes = sys.modules["__main__"], sys.modules.get("multiprocessing.process")
    file, module = getattr(main, "__file__", None), getattr(getattr(main, "__spec__", None), "name", None)
    absolute = str(Path(file).absolute()) if isinstance(file, str) else None
    return (
        partial(
            _set_caller,
            process_kind.caller or process_kind.noun(),
            {**RUNTIME.environment_for_children(), **environment},
        ),
        partial(_set_place, tuple(sys.path), tuple(sys.argv), directory),
        *(partial(_try, call) for call in limits()),
        *([] if processes is None else [partial(_set_key, bytes(processes.current_process().authkey))]),
        partial(_set_main, getattr(main, "__package__", None), absolute, module),
        partial(_set_keras, _keras_settings()),
    )


def limits() -> tuple[Callable[[], object], ...]:
    """Return calls that give another process this one's umask, CPUs, nice value and resource limits."""
    umask = re.search(r"^Umask:\s*(\w+)", Path("/proc/self/status").read_text(errors="replace"), re.MULTILINE)
    limits = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
    return (
        *([partial(os.umask, int(umask[1], 8))] if umask else []),  # a sandbox may not tell it
        partial(os.sched_setaffinity, 0, os.sched_getaffinity(0)),
        partial(os.setpriority, os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0)),
        *(partial(resource.setrlimit, limit, resource.getrlimit(limit)) for limit in limits),
    )


def _try(call: Callable[[], object]) -> None:
    with contextlib.suppress(OSError, ValueError):  # it may not raise everything that was lowered
        call()


def _set_caller(caller: str, environment: Mapping[str, str]) -> None:
    process_kind.caller = caller
    adopt(environment)
    RUNTIME.read_ceiling()  # before any code of the call could change the variable
    time.tzset()


def _set_place(path: Sequence[str], arguments: Sequence[str], directory: str) -> None:
    sys.path[:], sys.argv[:] = path, arguments
    importlib.invalidate_caches()
    os.chdir(directory)


def _set_key(key: bytes) -> None:
    """Set the key by which it authenticates to managers of `multiprocessing`."""
    current_process().authkey = key


def _set_main(package: str | None, file: str | None, module: str | None) -> None:
    """Set a new main module; from its file and name, `multiprocessing` makes it in processes that it starts.

    Args:
        package: the package that the program's main module is in, for its relative imports.
        file: the main module's file; None in a notebook.
        module: the main module's name if the program was run by it.
    """
    main: Any = ModuleType("__main__")
    main.__package__ = package
    if file is not None:
        main.__file__ = file
    if module is not None:
        main.__spec__ = ModuleSpec(module, None, origin=file)
    sys.modules["__main__"] = main


def _keras_settings() -> dict[str, Any]:
    """Return Keras' settings for a whole process; none if Keras is not imported, which nothing here does.

    Source: Keras 3, `keras.config` and `keras.dtype_policies`.
    """
    keras: Any = sys.modules.get("keras")
    found: dict[str, Any] = {}
    with contextlib.suppress(AttributeError):  # it is being imported in another thread
        found |= {name: getattr(keras.config, name)() for name in ("floatx", "epsilon", "image_data_format")}
        found["policy"] = keras.dtype_policies.serialize(keras.config.dtype_policy())
    return found


def _set_keras(settings: Mapping[str, Any]) -> None:
    """Set Keras up as in the caller, before anything is made with it."""
    keras: Any = sys.modules.get("keras")
    if keras is None or not settings:
        return
    with contextlib.suppress(AttributeError, ValueError):  # another Keras than the caller's
        for name in settings.keys() - {"policy"}:
            getattr(keras.config, f"set_{name}")(settings[name])
        keras.config.set_dtype_policy(keras.dtype_policies.deserialize(settings["policy"]))
