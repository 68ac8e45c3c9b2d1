"""Which backend Keras 3 has or will have in this process, as far as it is said. It imports no Keras.

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
    """Keras' backend, where it is another than TensorFlow; None where it is TensorFlow, or nothing is said."""
    config = sys.modules.get("keras.src.backend.config")
    said = getattr(config, "_BACKEND", None) or os.environ.get("KERAS_BACKEND") or _from_file()
    return said if isinstance(said, str) and said and said != OURS else None


@functools.cache  # who asks every second is told what it said at first
def _from_file() -> object:
    """What `keras.json` says; nothing where it cannot be read."""
    try:
        home = Path(os.environ.get("KERAS_HOME") or Path("~/.keras").expanduser())
        return json.loads((home / "keras.json").read_text()).get("backend")
    except (OSError, ValueError, AttributeError, RuntimeError):
        return None
