"""What errors say of missing memory: the frameworks' own texts, and texts like these about something else."""

from __future__ import annotations

import pytest

from tests.frameworks.novum import Novum
from tests.sizes import GIB, MIB
from tfgpu_magic.frameworks import registry
from tfgpu_magic.frameworks.shortage import Shortage, parse_size

NODE = "{{function_node __wrapped__%s_device_/job:localhost/replica:0/task:0/device:GPU:%d}} "
GPU, CPU = "/job:localhost/replica:0/task:0/device:GPU:1", "/job:localhost/replica:0/task:0/device:CPU:0"


def tensorflow(**facts: object) -> Shortage:
    return Shortage(framework="TensorFlow", **facts)  # type: ignore[arg-type]


def pytorch(**facts: object) -> Shortage:
    return Shortage(framework="PyTorch", **facts)  # type: ignore[arg-type]


def jax(**facts: object) -> Shortage:
    return Shortage(framework="JAX", **facts)  # type: ignore[arg-type]


TEXTS = {
    # TensorFlow
    f"{NODE % ('Fill', 1)}OOM when allocating tensor with shape[512,1024,1024] and type float on {GPU} by allocator "
    "GPU_1_bfc [Op:Fill] name: ": tensorflow(size=2 * GIB, shape=(512, 1024, 1024), dtype="float", device="GPU:1"),
    f"Graph execution error:\n\nDetected at node add defined at (most recent call last):\nOOM when allocating tensor "
    f"with shape[] and type bfloat16 on {GPU} by allocator GPU_1_bfc\n\t [[{{{{node add}}}}]]\nHint: If you want": (
        tensorflow(size=2, shape=(), dtype="bfloat16", device="GPU:1")
    ),
    "{{function_node __inference_<lambda>_11}} OOM when allocating tensor of shape [64,1048576] and type float\n\t "
    "[[{{node add}}]] [Op:__inference_<lambda>_11]": tensorflow(size=256 * MIB, shape=(64, 2**20), dtype="float"),
    f"OOM when allocating tensor with shape[8] and type resource on {GPU} by allocator GPU_1_bfc": tensorflow(
        shape=(8,), dtype="resource", device="GPU:1"
    ),
    f"{NODE % ('AddV2', 0)}failed to allocate memory [Op:AddV2] name: ": tensorflow(device="GPU:0"),
    f"Failed copying input tensor from {CPU} to {GPU} in order to run _EagerConst: Dst tensor is not initialized.": (
        tensorflow(device="GPU:1")
    ),
    "Bad StatusOr access: RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory": tensorflow(kind="driver"),
    "Out of memory while trying to allocate 1073741824 bytes. [Op:__inference_f_12]": tensorflow(size=GIB),
    "Failed to get convolution algorithm. This is probably because cuDNN failed to initialize, so try looking": (
        tensorflow(kind="library", certain=False, library="cuDNN")
    ),
    "DNN library initialization failed. Look at the errors above for more details. [Op:Conv2D]": tensorflow(
        kind="library", certain=False, library="cuDNN"
    ),
    "Attempting to perform BLAS operation using StreamExecutor without BLAS support [Op:MatMul] name: ": tensorflow(
        kind="library", certain=False, library="cuBLAS"
    ),
    f"{NODE % ('MatMul', 0)}No blas support for stream [Op:MatMul] name: ": tensorflow(
        kind="library", certain=False, library="cuBLAS"
    ),
    "failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED": tensorflow(kind="library", library="cuBLAS"),
    # PyTorch
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 1 has a total capacity of 7.79 GiB of which 12.00 MiB is "
    "free. Including non-PyTorch memory, this process has 7.76 GiB memory in use.": pytorch(
        size=20 * MIB, device="cuda:1"
    ),
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.79 GiB of which 1.00 GiB is free. "
    "Of the allocated memory 5.50 GiB is allocated by PyTorch, and 1.02 GiB is reserved by PyTorch but unallocated.": (
        pytorch(size=2 * GIB, device="cuda:0", in_use=11 * GIB // 2)
    ),
    "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported": pytorch(kind="driver"),
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`": pytorch(
        kind="library", library="cuBLAS"
    ),
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`": pytorch(
        kind="library", certain=False, library="cuBLAS"
    ),
    "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED": pytorch(kind="library", certain=False, library="cuDNN"),
    "GET was unable to find an engine to execute this computation": pytorch(
        kind="library", certain=False, library="cuDNN"
    ),
    # JAX
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 256.00MiB. [tf-allocator-allocation-error='']": jax(
        size=256 * MIB
    ),
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 256.00MiB.": jax(size=256 * MIB),
    "RESOURCE_EXHAUSTED: Out of memory allocating 2147483648 bytes.": jax(size=2 * GIB),
    "RESOURCE_EXHAUSTED: Failed to allocate request for 2.00GiB (2147483649B) on device ordinal 1": jax(
        size=2 * GIB + 1, device="cuda:1"
    ),
    "FAILED_PRECONDITION: DNN library initialization failed. Look at the errors above for more details.": jax(
        kind="library", certain=False, library="cuDNN"
    ),
    # A framework that tells no more than that
    "Novum is full": Shortage(framework="Novum"),
    # Others
    "out of memory": None,  # SQLite's
    "Unable to allocate 8.00 GiB for an array with shape (1073741824,) and data type float64": None,  # NumPy's
    "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried": None,
    f"OOM when allocating tensor with shape[9] and type float on {CPU} by allocator cpu [Op:Fill]": None,
    f"OOM when allocating tensor with shape[9] and type float on {CPU} by allocator mklcpu": None,
    "Failed to allocate memory for image": None,
    "RESOURCE_EXHAUSTED: quota exceeded": None,
    "cuDNN version 8 is too old": None,
    "CUDA error: device-side assert triggered": None,
    "DNN models failed": None,
    "": None,
}


@pytest.mark.parametrize(("text", "said"), TEXTS.items())
def test_what_an_error_says_of_memory(text: str, said: Shortage | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "FRAMEWORKS", (*registry.FRAMEWORKS, Novum()))

    assert registry.shortage(RuntimeError(text)) == said
    if said is not None:
        assert registry.is_out_of_memory(RuntimeError(text)) == (said.kind != "library")


def test_what_says_that_a_gpu_has_no_memory_left() -> None:
    texts = {
        "CUDA_ERROR_OUT_OF_MEMORY": True,
        "failed call to cuInit: Status: out of memory": True,
        "RESOURCE_EXHAUSTED: quota exceeded": False,
        "There is no room for 3 GiB of memory": False,
        "zoom must be positive": False,
    }

    assert {text: registry.is_out_of_memory(RuntimeError(text)) for text in texts} == texts


def test_the_framework_that_raised_it_is_asked_first() -> None:
    """Frameworks share words, and an error of another process has no more than its type."""
    text = "FAILED_PRECONDITION: DNN library initialization failed."
    known = type("FailedPreconditionError", (RuntimeError,), {"__module__": "tensorflow.python.framework.errors_impl"})

    found = [registry.shortage(kind(text)) for kind in (RuntimeError, known)]

    assert [one and one.framework for one in found] == ["JAX", "TensorFlow"]


@pytest.mark.parametrize(
    "text", ["[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation: out of memory"]
)
def test_the_drivers_words_count_only_from_a_framework(text: str) -> None:
    """Numba and CuPy pass them on, too."""

    def raised(module: str) -> BaseException:
        try:
            exec("raise RuntimeError(text)", {"__name__": module, "text": text})
        except RuntimeError as error:
            return error
        raise AssertionError("nothing was raised")

    assert registry.shortage(raised("numba.cuda.cudadrv.driver")) is None
    assert registry.shortage(raised("jax._src.xla_bridge")) == jax(kind="driver")
    assert registry.shortage(RuntimeError(text)) is not None  # of another process


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2.00GiB", 2 * GIB),
        ("20.00 MiB", 20 * MIB),
        ("512 bytes", 512),
        ("7B", 7),
        ("9", 9),
        ("1.2.3 MiB", None),
        ("much", None),
        ("2 GB", None),
    ],
)
def test_sizes_as_frameworks_write_them(text: str, size: int | None) -> None:
    assert parse_size(text) == size
