"""Keras' settings for a whole process, which change memory and numbers: read in the caller, set in the worker.

Neither function imports Keras or initializes TensorFlow: where Keras is not imported, nothing has been set.
Source: Keras 3, `keras.config` and `keras.dtype_policies`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import Any

_PLAIN = ("floatx", "epsilon", "image_data_format")


def read() -> dict[str, Any]:
    """Return the settings here: mixed precision as its configuration, the others as they are; none without Keras 3."""
    keras = sys.modules.get("keras")
    found: dict[str, Any] = {}
    with contextlib.suppress(AttributeError):  # Keras 2, or one that is being imported in another thread
        found |= {name: getattr(keras.config, name)() for name in _PLAIN}  # type: ignore[union-attr]
        found["policy"] = keras.dtype_policies.serialize(keras.config.dtype_policy())  # type: ignore[union-attr]
    return found


def apply(settings: Mapping[str, Any]) -> None:
    """Apply the settings in a process that has imported Keras, before it makes anything with it."""
    keras = sys.modules.get("keras")
    if keras is None or not settings:
        return
    with contextlib.suppress(AttributeError, ValueError):  # another Keras than the caller's
        for name in _PLAIN:
            getattr(keras.config, f"set_{name}")(settings[name])
        keras.config.set_dtype_policy(keras.dtype_policies.deserialize(settings["policy"]))
