"""Which TensorFlow is installed, and what GPUs it finds: it is imported in a process of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec

from tfgpu_magic.doctor import child
from tfgpu_magic.doctor.finding import outcome
from tfgpu_magic.doctor.machine import ThisMachine
from tfgpu_magic.ground.message import Message, Severity

FINDS = outcome("tensorflow.finds", Severity.GOOD, "TensorFlow {version}, built for CUDA {cuda}, finds {gpus}.")
ENDED = outcome(
    "tensorflow.ended",
    Severity.FAULT,
    "TensorFlow {version} is installed, and could not be imported and list its GPUs: {why}",
    "See whether this says more, or is slow:\n  time python -c 'import tensorflow'",
)
BLIND = outcome(
    "tensorflow.blind",
    Severity.FAULT,
    "TensorFlow {version} finds none of the GPUs that CUDA shows it. It is built for CUDA {cuda} and cuDNN {cudnn}; of "
    "their libraries it did not find: {missing}.",
    "Install those that are missing with it, or name their folders in LD_LIBRARY_PATH. It says more when it lists its "
    "GPUs:\n"
    "  pip install 'tensorflow[and-cuda]'\n"
    "  python -c \"import tensorflow as tf; tf.config.list_physical_devices('GPU')\"",
)
FEWER = outcome(
    "tensorflow.fewer",
    Severity.WARNING,
    "TensorFlow {version} finds {gpus}, and passes over {passed_over}, which CUDA shows.",
    "If they have fewer than 8 multiprocessors, this lets it take them:\n  export TF_MIN_GPU_MULTIPROCESSOR_COUNT=1",
)

NEEDED = ("cudart", "cublas", "cublasLt", "cudnn", "cufft", "cusolver", "cusparse")
"""The libraries without which TensorFlow uses no GPU."""

_CODE = "from tfgpu_magic.frameworks.tensorflow.device_child import main; import tensorflow; main(tensorflow)"


def installed() -> str | None:
    """Return the version of TensorFlow, which is not imported; None where it is not installed."""
    for package in ("tensorflow", "tensorflow-cpu", "tf-nightly", "tf-nightly-cpu", "tensorflow-intel"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(package)
    return "of an unknown version" if find_spec("tensorflow") else None  # built in place


def tensorflow(machine: ThisMachine) -> Iterator[Message]:
    """Yield which of CUDA's GPUs TensorFlow finds. If the driver fails, TensorFlow is not imported: it may hang."""
    version = installed()
    if machine.quick or version is None or not (machine.has_gpus or machine.snapshot.absent):
        return
    answer = child.ask(_CODE, patience=child.IMPORTING)
    if not answer.facts:
        yield ENDED(version=version, why=answer.why)
        return
    built = {name: answer.facts[name] for name in ("version", "cuda", "cudnn")}
    gpus, libraries = answer.facts["gpus"], answer.facts["libraries"]
    found = [f"GPU {machine.label(uuid)}" for uuid in gpus]
    passed_over = [f"GPU {machine.label(uuid)}" for uuid in machine.cuda.facts.get("shown", []) if uuid not in gpus]
    if found and passed_over:
        yield FEWER(**built, gpus=found, passed_over=passed_over)
    elif found:
        yield FINDS(**built, gpus=found)
    elif passed_over:
        yield BLIND(**built, missing=[f"lib{name}" for name in NEEDED if name not in libraries])
