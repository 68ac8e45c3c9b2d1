"""Gives GPU memory that no framework uses back to the driver at once; `idle_release` does in an idle kernel."""

from __future__ import annotations

from tfgpu_magic import frameworks
from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.config.requests.growth import Growth
from tfgpu_magic.errors import Refused
from tfgpu_magic.host import here

_RELEASE = Growth(release=True)


def give_back() -> int:
    """Give GPU memory that is kept and not used back to the driver, while this process lives.

    TensorFlow gives back where `growth --release` is in force, and PyTorch what its cache keeps; JAX cannot. It waits
    until the GPUs have done their work. What something refers to stays, and no framework is started for it.

    Returns:
        The bytes that went back, of all GPUs together, by the driver's account or by PyTorch's.

    Raises:
        Refused: no framework that uses the GPUs can give memory back.
    """
    freeing = frameworks.freeing()
    keeping = [framework.name for framework in frameworks.FRAMEWORKS if framework.stage() is Stage.READY]
    if keeping and not freeing:
        keep = "keeps" if len(keeping) == 1 else "keep"
        raise Refused(
            f"{' and '.join(keeping)} {keep} the GPU memory that was taken until this {here()} ends. TensorFlow gives "
            f"back what it does not use where `{_RELEASE}` was said before its first operation.",
            verdict="",
        )
    return sum(sum(framework.give_back().values()) for framework in freeing)
