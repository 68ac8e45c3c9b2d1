"""A simulated GPU machine, for tests, demos and rehearsal: TensorFlow, JAX, gpustat and nvitop run on it unchanged.

Stand-ins for NVIDIA's driver libraries, in C and compiled on first use, let the real GPU runtimes of TensorFlow and
JAX allocate and run out of memory, and let NVML list the processes that hold it. Kernels do nothing there: the result
of a computation is the memory's former content, which is **zeros** as long as it is fresh. So it is good for memory
and useless for arithmetic; only copies are real. Only programs that are started on the machine see it::

    with Machine.create("2x16GiB") as machine:
        machine.add_neighbour("9GiB@0")
        machine.run([sys.executable, "train.py"])

and on the command line: ``python -m tfgpu_magic.simgpu --gpus 2x16GiB --neighbour 9GiB@0 -- python train.py``.
"""

from tfgpu_magic.simgpu.figures import SimGpu, SimProcess
from tfgpu_magic.simgpu.machine import ENVIRONMENT, Machine
from tfgpu_magic.simgpu.neighbours import Neighbour, Row

__all__ = ["ENVIRONMENT", "Machine", "Neighbour", "Row", "SimGpu", "SimProcess"]
