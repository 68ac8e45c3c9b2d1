"""Which backend Keras 3 has or will have in this process, as far as it is set. Keras is not imported for it.

Source: Keras 3, `keras/src/backend/config.py`: the variable outweighs the file, and the first import decides.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path

OURS = "tensorflow"


def other_backend() -> str | None:
    """Return Keras' backend if it is another than TensorFlow; None where it is TensorFlow, or not set."""
    config = sys.modules.get("keras.src.backend.config")
    backend = getattr(config, "_BACKEND", None) or os.environ.get("KERAS_BACKEND") or _from_file()
    return backend if isinstance(backend, str) and backend and backend != OURS else None


@functools.cache  # it is called every second; the content of the file at the first call counts
def _from_file() -> object:
    """Return the backend in `keras.json`; None where that cannot be read."""
    try:
        folder = Path(os.environ.get("KERAS_HOME") or Path("~/.keras").expanduser())
        return json.loads((folder / "keras.json").read_text()).get("backend")
    except (OSError, ValueError, AttributeError, RuntimeError):
        return None
