"""What a worker process takes from its caller beside environment and directory: Keras' settings, who it is to others.

Nothing here imports Keras or initializes TensorFlow: where Keras is not imported, nothing has been set.
Source: Keras 3, `keras.config` and `keras.dtype_policies`.
"""

from __future__ import annotations

import contextlib
import sys
import time
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from tfgpu_magic.isolate.process.order import Order

_KERAS = ("floatx", "epsilon", "image_data_format")


def here() -> dict[str, Any]:
    """Return what a worker process takes from this process, as fields of its `Order`."""
    main, processes = sys.modules["__main__"], sys.modules.get("multiprocessing.process")
    file = getattr(main, "__file__", None)
    return {
        "key": None if processes is None else bytes(processes.current_process().authkey),
        "package": getattr(main, "__package__", None),
        "file": str(Path(file).absolute()) if isinstance(file, str) else None,
        "module": getattr(getattr(main, "__spec__", None), "name", None),
        "keras": _keras_settings(),
    }


def take(order: Order) -> None:
    """Give this process what its caller has, and a new, empty main module; before it makes anything with Keras."""
    time.tzset()  # for the environment, which is new too
    if order.key is not None:
        from multiprocessing import current_process

        current_process().authkey = order.key
    sys.modules["__main__"] = _main(order)
    keras = sys.modules.get("keras")
    if keras is not None and order.keras:
        with contextlib.suppress(AttributeError, ValueError):  # another Keras than the caller's
            for name in _KERAS:
                getattr(keras.config, f"set_{name}")(order.keras[name])
            keras.config.set_dtype_policy(keras.dtype_policies.deserialize(order.keras["policy"]))


def _keras_settings() -> dict[str, Any]:
    keras: Any = sys.modules.get("keras")
    found: dict[str, Any] = {}
    with contextlib.suppress(AttributeError):  # Keras 2, or one that is being imported in another thread
        found |= {name: getattr(keras.config, name)() for name in _KERAS}
        found["policy"] = keras.dtype_policies.serialize(keras.config.dtype_policy())
    return found


def _main(order: Order) -> ModuleType:
    """Return a main module; from its file and name, `multiprocessing` makes it in processes that it starts."""
    main: Any = ModuleType("__main__")
    main.__package__ = order.package
    if order.file is not None:
        main.__file__ = order.file
    if order.module is not None:
        main.__spec__ = ModuleSpec(order.module, None, origin=order.file)
    return main  # type: ignore[no-any-return]
