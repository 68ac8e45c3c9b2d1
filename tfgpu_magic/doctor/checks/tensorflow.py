"""Which TensorFlow is installed, and what GPUs it finds: it is imported in a process of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec

from tfgpu_magic.doctor import child
from tfgpu_magic.doctor.finding import Finding, Outcome, Severity
from tfgpu_magic.doctor.machine import ThisMachine

FINDS = Outcome("tensorflow.finds", Severity.GOOD, "TensorFlow {version}, built for CUDA {cuda}, finds {gpus}.")
ABSENT = Outcome("tensorflow.absent", Severity.NOTE, "It is not installed here.")
NOT_ASKED = Outcome(
    "tensorflow.not-asked",
    Severity.NOTE,
    "TensorFlow {version} is installed. It was not imported: it may hang with the driver.",
)
NO_GPU = Outcome(
    "tensorflow.no-gpu",
    Severity.NOTE,
    "TensorFlow {version} can be imported. It finds no GPU, for the reason that is given above.",
)
ENDED = Outcome(
    "tensorflow.ended",
    Severity.FAULT,
    "TensorFlow {version} is installed, and could not be imported and list its GPUs: {why}",
    "See whether this says more, or is slow:\n  time python -c 'import tensorflow'",
)
CPU_ONLY = Outcome(
    "tensorflow.cpu-only",
    Severity.FAULT,
    "TensorFlow {version} is built without CUDA: it uses no GPU.",
    "Install a build with it:\n  pip install 'tensorflow[and-cuda]'",
)
LIBRARIES = Outcome(
    "tensorflow.libraries",
    Severity.FAULT,
    "TensorFlow {version} finds no GPU, since it did not find all of CUDA's libraries: {missing}. It is built for CUDA "
    "{cuda} and cuDNN {cudnn}.",
    "Install them with it, or name their folders in LD_LIBRARY_PATH:\n  pip install 'tensorflow[and-cuda]'",
)
BLIND = Outcome(
    "tensorflow.blind",
    Severity.FAULT,
    "TensorFlow {version} finds none of the GPUs that CUDA shows it, though it has all of CUDA's libraries.",
    "It says why when it lists them:\n  python -c \"import tensorflow as tf; tf.config.list_physical_devices('GPU')\"",
)
FEWER = Outcome(
    "tensorflow.fewer",
    Severity.WARNING,
    "TensorFlow {version} finds {gpus}, and passes over {passed_over}, which CUDA shows.",
    "If they have fewer than 8 multiprocessors, this lets it take them:\n  export TF_MIN_GPU_MULTIPROCESSOR_COUNT=1",
)

NEEDED = ("cudart", "cublas", "cublasLt", "cudnn", "cufft", "cusolver", "cusparse")
"""The libraries without which TensorFlow uses no GPU."""

_CODE = "from tfgpu_magic.frameworks.tensorflow.found import main; import tensorflow; main(tensorflow)"


def installed() -> str | None:
    """Return the version of TensorFlow, which is not imported; None where it is not installed."""
    for package in ("tensorflow", "tensorflow-cpu", "tf-nightly", "tf-nightly-cpu", "tensorflow-intel"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(package)
    return "of an unknown version" if find_spec("tensorflow") else None  # built in place


def tensorflow(machine: ThisMachine) -> Iterator[Finding]:
    """Tell what TensorFlow finds."""
    if machine.quick:
        return
    version = installed()
    if version is None:
        yield ABSENT()
        return
    driver = machine.driver
    if driver.answer.late:
        yield NOT_ASKED(version=version)
        return
    answer = child.ask(_CODE, patience=child.IMPORTING)
    facts = answer.facts
    if not facts:
        yield ENDED(version=version, why=answer.why)
    else:
        yield _judged(machine, **facts)


def _judged(
    machine: ThisMachine, *, version: str, with_cuda: bool, cuda: str | None, cudnn: str | None, gpus: list[str],
    libraries: list[str],
) -> Finding:  # fmt: skip
    """Return what is to be said of what a TensorFlow has answered: UUIDs of GPUs, versions that it is built for."""
    shown = machine.cuda.facts.get("shown", [])
    missing = [name for name in NEEDED if name not in libraries]
    if not machine.driver.works:
        return NO_GPU(version=version)
    if not with_cuda:
        return CPU_ONLY(version=version)
    found = [f"GPU {machine.label(uuid)}" for uuid in gpus]
    passed_over = [f"GPU {machine.label(uuid)}" for uuid in shown if uuid not in gpus]
    if gpus and passed_over:
        return FEWER(version=version, gpus=found, passed_over=passed_over)
    if gpus:
        return FINDS(version=version, cuda=cuda, cudnn=cudnn, gpus=found)
    if not shown and machine.visible is not None:
        return NO_GPU(version=version)
    if missing:
        return LIBRARIES(version=version, missing=[f"lib{name}" for name in missing], cuda=cuda, cudnn=cudnn)
    return BLIND(version=version)
