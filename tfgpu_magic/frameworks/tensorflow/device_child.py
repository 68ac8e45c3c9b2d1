"""In a process of its own, which imports TensorFlow: its build, the GPUs that it lists, and CUDA's libraries in use."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from tfgpu_magic.frameworks import cuda


def main(tf: Any) -> None:
    """Print what this TensorFlow finds, and exit at once: its own end takes a second."""
    build = tf.sysconfig.get_build_info()
    listed = [int(gpu.name.rpartition(":")[2]) for gpu in tf.config.list_physical_devices("GPU")]
    shown = cuda.visible_gpus()
    found = {
        "version": tf.__version__,
        "cuda": build.get("cuda_version"),
        "cudnn": build.get("cudnn_version"),
        "gpus": [shown[ordinal] for ordinal in listed],
        "libraries": sorted(_loaded_libraries(Path("/proc/self/maps").read_text(errors="replace"))),
    }
    print(json.dumps(found), flush=True)
    os._exit(0)


def _loaded_libraries(maps: str) -> set[str]:
    return set(re.findall(r"/lib(cu\w+)\.so(?:\.[\d.]*)?$", maps, re.MULTILINE))
