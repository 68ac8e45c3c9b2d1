"""What a worker process takes from its caller beside environment and directory: Keras' settings, who it is to others.

Nothing here imports Keras or initializes TensorFlow: where Keras is not imported, nothing has been set.
Source: Keras 3, `keras.config` and `keras.dtype_policies`.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_KERAS = ("floatx", "epsilon", "image_data_format")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherited:
    """What a worker process takes from its caller.

    Attributes:
        key: the key by which it authenticates to managers of `multiprocessing`; None where that is not imported.
        package: the package that the program's main module is in, for its relative imports.
        file: the main module's file; None in a notebook.
        module: the main module's name where the program was run by it.
        keras: Keras' settings for a whole process, mixed precision as its configuration; none without Keras 3.
    """

    key: bytes | None = field(default=None, repr=False)
    package: str | None = None
    file: str | None = None
    module: str | None = None
    keras: Mapping[str, Any] = field(default_factory=dict)


def here() -> Inherited:
    """Return what a worker process takes from this process."""
    main, processes = sys.modules["__main__"], sys.modules.get("multiprocessing.process")
    file = getattr(main, "__file__", None)
    return Inherited(
        key=None if processes is None else bytes(processes.current_process().authkey),
        package=getattr(main, "__package__", None),
        file=str(Path(file).absolute()) if isinstance(file, str) else None,
        module=getattr(getattr(main, "__spec__", None), "name", None),
        keras=_keras_settings(),
    )


def take(inherited: Inherited) -> None:
    """Give this process what another has, and a new, empty main module; before it makes anything with Keras."""
    time.tzset()  # for the environment, which is new too
    if inherited.key is not None:
        from multiprocessing import current_process

        current_process().authkey = inherited.key
    sys.modules["__main__"] = _main(inherited)
    keras = sys.modules.get("keras")
    if keras is not None and inherited.keras:
        with contextlib.suppress(AttributeError, ValueError):  # another Keras than the caller's
            for name in _KERAS:
                getattr(keras.config, f"set_{name}")(inherited.keras[name])
            keras.config.set_dtype_policy(keras.dtype_policies.deserialize(inherited.keras["policy"]))


def _keras_settings() -> dict[str, Any]:
    keras: Any = sys.modules.get("keras")
    found: dict[str, Any] = {}
    with contextlib.suppress(AttributeError):  # Keras 2, or one that is being imported in another thread
        found |= {name: getattr(keras.config, name)() for name in _KERAS}
        found["policy"] = keras.dtype_policies.serialize(keras.config.dtype_policy())
    return found


def _main(inherited: Inherited) -> ModuleType:
    """Return a main module; from its file and name, `multiprocessing` makes it in processes that it starts."""
    main: Any = ModuleType("__main__")
    main.__package__ = inherited.package
    if inherited.file is not None:
        main.__file__ = inherited.file
    if inherited.module is not None:
        main.__spec__ = ModuleSpec(inherited.module, None, origin=inherited.file)
    return main  # type: ignore[no-any-return]
