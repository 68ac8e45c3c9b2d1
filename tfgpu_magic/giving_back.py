"""Gives GPU memory that TensorFlow does not use back to the driver at once; `idle_release` does in an idle kernel."""

from __future__ import annotations

from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.config.requests.growth import Growth
from tfgpu_magic.errors import Refused
from tfgpu_magic.frameworks.tensorflow import TensorFlow
from tfgpu_magic.host import here

_RELEASE = Growth(release=True)


def give_back() -> int:
    """Give GPU memory that TensorFlow does not use back to the driver, while TensorFlow lives.

    It is for a process in which `growth --release` is in force. It waits until the GPUs have done their work. Tensors
    and variables that something refers to stay, and TensorFlow is never started for it.

    Returns:
        The bytes that went back, of all GPUs together, by the driver's account.

    Raises:
        Refused: TensorFlow uses the GPUs, and was not set up to give memory back.
    """
    tensorflow = TensorFlow()
    if tensorflow.stage() is Stage.READY and not tensorflow.gives_back:
        raise Refused(
            f"TensorFlow keeps the GPU memory that it has taken until this {here()} ends. It gives back what it does "
            f"not use where `{_RELEASE}` was said before its first operation.",
            verdict="",
        )
    return sum(tensorflow.give_back().values())
