"""What is asked of PyTorch and JAX, by a user or an administrator, holds in whatever order things come.

A scene is cells of one IPython, with stand-ins for PyTorch and JAX that take their memory of the simulated driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import pytest

from tests.frameworks.cells_on_machine import Play, stage
from tests.machines import machine_of
from tfgpu_magic.simgpu import Machine

machine = machine_of("2x16GiB")

FREE, CAPPED, NO_GPU = "'taken'", "'out of memory'", "'no GPU'"
CEILING = {"TFGPU_CEILING": "limit 2GiB"}
NONE = {"TFGPU_CEILING": "visible none"}
OLD = "from tfgpu_magic.frameworks.torch.framework import Torch; Torch.version = lambda self: (2, 9, 0)"
BLIND = """
import tfgpu_magic.engine.enforcement as a
from tfgpu_magic.ground.snapshot import Snapshot
a.look_well = lambda: Snapshot(time=0.0, error="The driver does not answer.")
"""
SAID = "from tfgpu_magic.engine import enforcement as a, engine; str(a.said_to_others(engine.plan('limit 1GiB')))"
RESUME = "from tfgpu_magic.notebook import loading; loading._apply(get_ipython(), 'limit 99GiB', 'limit 1GiB', print)"
RESUME_FITS = RESUME.replace("99GiB", "1GiB")
SEEN = "import tensorflow as tf; tf.config.get_visible_devices('GPU')"
NOW = "from tfgpu_magic.engine import engine; str(engine.current().asked)"
KERAS = {"KERAS_BACKEND": "jax"}
DEFECT = "import tfgpu_magic.engine.enforcement as e; e.with_others = lambda *_: 1 / 0"
DEFECT_OF_JAX = "from tfgpu_magic.frameworks.jax.framework import Jax; Jax.plan = lambda *_: 1 / 0"
DEFECT_OF_ONE = "from tfgpu_magic.frameworks.torch.framework import Torch; Torch.plan = lambda *_: 1 / 0"
BROKEN = "import tfgpu_magic.engine.enforcement as a; a.look_well = lambda: 1 / 0"


AFTER_EXIT = """
import tfgpu_magic
from tfgpu_magic.frameworks.self_report import after_exit
now = tfgpu_magic.look()._replace(processes=())
gpus = list(zip(after_exit(now).gpus, now.gpus))
"""
TAKES_NO_LIMIT = "torch.cuda.get_per_process_memory_fraction = lambda _: 1 / 0"
DIVIDE = """[tf.config.set_logical_device_configuration(
    gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=512)]
) for gpu in tf.config.list_physical_devices('GPU')]"""
TENSORFLOW_REJECTS = "import tfgpu_magic.frameworks.tensorflow.devices as d; d.write_settings = lambda *_: 1 / 0"
PYTORCH_REJECTS = "sys.modules['torch'].cuda.set_per_process_memory_fraction = lambda *_: 1 / 0"
OPTIONS = "os.environ.get('PYTORCH_ALLOC_CONF')"
PARTS = "[tf.config.get_logical_device_configuration(gpu) for gpu in tf.config.list_physical_devices('GPU')]"
TOUCH = "from tests.tf.on_machine import touch_every_gpu; touch_every_gpu()"
LITTLE = "from tests.sizes import LITTLE; all(size in LITTLE for size in held())"


class Scene:
    """Steps, each a cell and behind an arrow what it must say, in an environment; and what none of them may say.

    Args:
        steps: the steps.
        env: the environment.
        never: what none of them may say.
        before: what is done before the extension is loaded.
    """

    def __init__(
        self, *steps: str, env: Mapping[str, str] = MappingProxyType({}), never: str = "Traceback", before: str = ""
    ) -> None:
        self.steps, self.env, self.never, self.before = steps, env, never, before


SCENES = {
    # A limit, whatever has come before it
    **{
        f"a limit for PyTorch, after {before or 'nothing'}": Scene(
            "%gpu limit 4GiB", f"take(5) -> {CAPPED}", f"take(2) -> {FREE}", f"mib()[0] -> {taken}", before=before
        )
        for before, taken in {
            "": 2304,
            "import decimal; decimal.getcontext().prec = 4": 2304,
            "import torch": 2304,
            "import jax": 2304,
            "import tensorflow": 2304,
            "take(1)": 3328,
        }.items()
    },
    **{
        f"what JAX takes of {words}, after {before or 'nothing'}": Scene(
            f"%gpu {words}", f"start_jax() -> {taken}", before=before
        )
        for words, taken in {
            "limit 4GiB": "[4352, 4352]",
            "limit 25%": "[4352, 4352]",
            "limit 4GiB --grow": "[256, 256]",
            "growth": "[256, 256]",
            "visible 1; limit 4GiB": "[0, 4352]",
            "limit 0=1GiB 1=4GiB": "[1280, 1280]",  # it has one for all GPUs, and a note says so
        }.items()
        for before in ("", "import jax")
    },
    "two frameworks and the sum": Scene(
        "%gpu limit 2GiB -> Together they may take 4 GiB of GPU 0 (PyTorch 2 GiB, JAX 2 GiB)",
        "take(1); start_jax()",
        "mib()[0] -> 3328",
        before="import torch, jax",
    ),
    **{
        f"TensorFlow and PyTorch, {order[0]} first": Scene(
            "%gpu limit 2GiB", order[0], order[1], f"take(3) -> {CAPPED}", "mib() -> [3328, 2304]"
        )
        for order in (("take(1)", TOUCH), (TOUCH, "take(1)"))
    },
    "PyTorch 2.9 stays on its GPU, and each other is held once a cell has used it": Scene(
        "%gpu limit 4GiB -> PyTorch before 2.10 is held on its `cuda:0` from its start",
        f"take(5) -> {CAPPED}",
        f"take(2) -> {FREE}",
        "torch = __import__('torch'); torch.cuda.current_device() -> 0",
        "mib() -> [2304, 0]",
        f"take(1, 1) -> {FREE}",
        f"take(4, 1) -> {CAPPED}",
        "torch.cuda.current_device() -> 0",
        before=f"{OLD}; import torch",
        env={"TORCH_STAND_IN": "2.9"},
    ),
    "PyTorch that takes no limit drops neither JAX's nor itself": Scene(
        "start_jax() -> [1280, 256]",
        f"take(1) -> {FREE}",
        before=f"take(1); torch = sys.modules['torch']; {TAKES_NO_LIMIT}",
        env=CEILING,
    ),
    "a line for TensorFlow that is imported after PyTorch took memory": Scene(
        "take(1)",
        "import tensorflow",
        "%tf_gpu limit 2GiB -> torch already uses a GPU",
        TOUCH,
        "mib() -> [3328, 2304]",
        never="Nobody can tell",
    ),
    "a configured limit, of TensorFlow that is imported after PyTorch took memory": Scene(
        "take(1)",
        "import tensorflow",
        TOUCH,
        "mib() -> [3328, 2304]",
        env={"TFGPU_POLICY": "limit 2GiB"},
        never="NOT in",
    ),
    # Where one framework rejects it, each has what it had
    "TensorFlow rejects what PyTorch was told": Scene(
        "take(1)",
        "import tensorflow",
        "%gpu limit 4GiB",
        TENSORFLOW_REJECTS,
        "%gpu limit 2GiB -> TensorFlow did not take it",
        "fraction() -> 0.25",
        f"{OPTIONS} -> fraction:0.25",
        f"take(2) -> {FREE}",
        "%gpu plan -> `limit 4GiB`",
    ),
    "PyTorch rejects what TensorFlow would be told": Scene(
        "take(1)",
        "import tensorflow as tf",
        PYTORCH_REJECTS,
        "%gpu limit 2GiB -> PyTorch did not take it",
        f"{PARTS} -> [None, None]",
        f"{OPTIONS} is None -> True",
        "%gpu plan -> No policy is set",
    ),
    "TensorFlow and JAX grow": Scene("%gpu growth", "start_jax()", TOUCH, f"{LITTLE} -> True"),
    "too late for JAX": Scene(
        "x = start_jax()",
        "%gpu limit 4GiB -> JAX is already using a GPU in this session, since In [",
        "%gpu limit 4GiB -> Leave IPython, start it again and say first:   %gpu limit 4GiB",
        f"take(3) -> {FREE}",
    ),
    "the same words again": Scene("%gpu limit 2GiB", "start_jax()", "%gpu limit 2GiB -> JAX takes 2 GiB of GPU 0, 1."),
    "PyTorch that has taken more": Scene(
        f"take(5) -> {FREE}", "%gpu limit 4GiB -> PyTorch has taken 5 GiB of GPU 0 already, and is to have 4 GiB."
    ),
    **{
        f"options of PyTorch's allocator, {name}": Scene(
            "%gpu limit 4GiB",
            f"os.environ['{name}'] -> {options},per_process_memory_fraction:0.25",
            "%gpu default",
            f"os.environ['{name}'] -> '{options}'",
            env={name: options},
        )
        for name, options in {
            "PYTORCH_ALLOC_CONF": "max_split_size_mb:128",
            "PYTORCH_CUDA_ALLOC_CONF": "roundup_power2_divisions:[256:1,>:4]",
        }.items()
    },
    "words for TensorFlow leave PyTorch free": Scene(
        "import torch",
        "%tf_gpu limit 2GiB -> PyTorch is imported here too, and left free: `%gpu ",
        f"take(5) -> {FREE}",
    ),
    "words for TensorFlow leave the others as they were told": Scene(
        "%gpu limit 4GiB", "%tf_gpu limit 2GiB", f"take(5) -> {CAPPED}"
    ),
    # What a process promises
    "the most of any, until one is imported": Scene("%gpu limit 4GiB", "promised() -> [4096, 4096]"),
    "PyTorch and JAX together": Scene("import torch, jax", "%gpu limit 4GiB", "promised() -> [8192, 8192]"),
    "PyTorch beside a lower TensorFlow": Scene(
        "import torch", "%gpu limit 4GiB", "%tf_gpu limit 1GiB", "promised() -> [4096, 4096]"
    ),
    "a process whose Keras keeps TensorFlow from the GPUs": Scene(
        "%gpu limit 4GiB", "promised() -> [4096, 4096]", env={"KERAS_BACKEND": "jax"}
    ),
    "what only a ceiling limits is no promise, once they are imported either": Scene(
        "%tf_gpu limit 1GiB",
        "promised() -> [1024, 1024]",
        "import torch",
        "promised() -> [1024, 1024]",
        env={"TFGPU_CEILING": "limit 6GiB"},
    ),
    "what is taken at once is one, though only a ceiling limits it": Scene(
        "%tf_gpu growth off", "promised() -> [6144, 6144]", env={"TFGPU_CEILING": "limit 6GiB"}
    ),
    "a policy that only PyTorch has": Scene(
        "import torch", "promised() -> [2048, 2048]", env={"TFGPU_POLICY": "limit 2GiB"}
    ),
    # What the magic says; the rest is in `transcript.txt`
    "TensorFlow has no GPU": Scene(
        "import tensorflow as tf; tf.config.set_visible_devices([], 'GPU')",
        "%gpu plan limit 4GiB -> `limit 4GiB` would do this:",
        "%gpu limit 4GiB -> `limit 4GiB` holds for TensorFlow, PyTorch and JAX",
        "%gpu plan -> `limit 4GiB` holds for TensorFlow, PyTorch and JAX",
        never="no effect",
    ),
    "default drops it": Scene(
        "%gpu limit 4GiB", "%gpu default", "[name for name in os.environ if 'XLA_' in name or 'ALLOC' in name] -> []"
    ),
    "what every framework holds is free after a restart, where the driver names no process": Scene(
        "take(1); start_jax()", AFTER_EXIT, "[(then.free - now.free) // 2**20 for then, now in gpus] -> [13376, 12352]"
    ),
    "a framework that the ceiling holds is not called free": Scene(
        "import torch", "%tf_gpu limit 1GiB -> PyTorch takes up to 2 GiB of GPU 0", env=CEILING, never="left free"
    ),
    "no framework passes the ceiling": Scene(
        "%gpu default",
        f"take(3) -> {CAPPED}",
        "%gpu limit 6GiB -> UsageError",
        "%gpu growth off",
        "start_jax() -> [2304, 2304]",
        env=CEILING,
    ),
    "a policy holds for what is imported after TensorFlow": Scene(
        TOUCH, f"take(3) -> {CAPPED}", env={"TFGPU_POLICY": "limit 2GiB"}
    ),
    # A policy that the ceiling lowers, or that the machine has not
    "a policy above the ceiling": Scene(
        f"take(3) -> {CAPPED}",
        f"take(1) -> {FREE}",
        "jax_limits() -> [2047, 2047]",
        env={"TFGPU_POLICY": "limit 6GiB", **CEILING},
    ),
    "a policy that names an absent GPU": Scene(
        "import torch -> There is no GPU 5 here", f"take(5) -> {CAPPED}", env={"TFGPU_POLICY": "limit 5=2GiB 0=2GiB"}
    ),
    "a policy for absent GPUs alone": Scene("start_jax() -> [256, 256]", env={"TFGPU_POLICY": "limit 5=2GiB"}),
    # Memory that goes back
    "memory that goes back, every framework": Scene(
        "%gpu growth --release -> TensorFlow's alone: nothing that PyTorch and JAX took goes back by itself.",
        "os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] -> 'false'",
        "os.environ['TF_GPU_ALLOCATOR'] -> 'cuda_malloc_async'",
    ),
    "memory that goes back, under a ceiling": Scene(
        "import tensorflow -> keeps to no limit",
        f"take(3) -> {CAPPED}",
        env={"TFGPU_POLICY": "growth --release", **CEILING},
    ),
    # A ceiling without any GPU
    "no GPU": Scene(
        "os.environ['CUDA_VISIBLE_DEVICES'] -> '-1'", f"take(3) -> {NO_GPU}", "start_jax() -> [0, 0]", env=NONE
    ),
    "no GPU, a policy": Scene(f"take(3) -> {NO_GPU}", env={"TFGPU_POLICY": "pick; limit 1GiB", **NONE}),
    "a ceiling that is misspelt": Scene(f"take(3) -> {NO_GPU}", env={"TFGPU_CEILING": "little"}),
    "no GPU, where PyTorch has one": Scene(f"take(1) -> {CAPPED}", env=NONE, before="take(1)"),
    "no GPU, where CUDA runs": Scene("start_jax()[0] < 1290 -> True", env=NONE, before="take(1)"),
    "no GPU, whatever is said": Scene(
        "%gpu growth -> `visible none; growth` holds", "%gpu visible none", f"take(1) -> {NO_GPU}", env=NONE
    ),
    "no GPU, whatever is said where PyTorch has one": Scene(
        "%gpu growth", "%gpu visible none", "%tf_gpu visible none", f"take(1) -> {CAPPED}", env=NONE, before="take(1)"
    ),
    "no GPU, said later": Scene("%config TfGpuMagics.ceiling = 'visible none'", f"take(1) -> {NO_GPU}", env=CEILING),
    # A configured choice of GPUs
    "a policy that chooses": Scene(
        f"take(1) -> {FREE}",
        f"take(2) -> {CAPPED}",
        "mib() -> [0, 1280]",
        "start_jax() -> [0, 3328]",
        env={"TFGPU_POLICY": "visible 1; limit 2GiB"},
    ),
    "a policy that picks": Scene("sorted(start_jax()) -> [0, 4352]", env={"TFGPU_POLICY": "pick; limit 25%"}),
    "a policy that hides every GPU": Scene(f"take(1) -> {NO_GPU}", env={"TFGPU_POLICY": "visible none"}),
    "a policy that picks, then TensorFlow": Scene(
        "import torch; seen = os.environ['CUDA_VISIBLE_DEVICES']",
        "import tensorflow as tf; x = tf.zeros(1); seen == os.environ['CUDA_VISIBLE_DEVICES'] -> True",
        "sorted(mib()) -> [0, 2304]",
        f"take(3) -> {CAPPED}",
        env={"TFGPU_POLICY": "pick; limit 2GiB"},
    ),
    # PyTorch is told through its own interface, whatever its variables say
    "an old PyTorch after a line": Scene(OLD, "%tf_gpu limit 1GiB", f"take(5) -> {CAPPED}", env=CEILING),
    "an old PyTorch after JAX": Scene(OLD, "import jax", f"take(5) -> {CAPPED}", env=CEILING),
    "an allocator of CUDA's": Scene(
        "%tf_gpu limit 1GiB",
        f"take(5) -> {CAPPED}",
        env={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync", **CEILING},
    ),
    **{
        f"options that are set afterwards, {name}": Scene(
            "%gpu limit 4GiB",
            f"os.environ['{name}'] = 'expandable_segments:True'; take(5) -> {CAPPED}",
            f"take(2) -> {FREE}",
        )
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    },
    "variables of JAX that are set afterwards": Scene(
        "%gpu limit 4GiB",
        "os.environ.update(XLA_PYTHON_CLIENT_MEM_FRACTION='0.9', XLA_CLIENT_MEM_FRACTION='0.9')",
        "jax_limits() -> [4095, 4095]",
    ),
    "a fraction of the user's own": Scene(
        "%gpu limit 4GiB", f"take(3) -> {FREE}", "%gpu default", "fraction() -> 0.1", before="own_fraction(0.1)"
    ),
    "a fraction of the user's own, as an option": Scene(
        "%gpu limit 4GiB",
        f"take(3) -> {FREE}",
        "%gpu default",
        "fraction() -> 0.1",
        env={"PYTORCH_CUDA_ALLOC_CONF": "per_process_memory_fraction:0.1"},
    ),
    "one GPU has a limit": Scene(
        "%gpu limit 0=1GiB -> JAX has one limit for all GPUs, a part of each: it takes no more than 1024 MiB of GPU 1",
        f"take(3, gpu=1) -> {FREE}",
        f"take(3) -> {CAPPED}",
    ),
    # A fraction of the user's own, under a ceiling: of both the lower holds, but where words say what it is to be
    "a lower fraction of the user's own": Scene(
        "fraction() -> 0.05",
        "%gpu growth",
        "fraction() -> 0.05",
        "%gpu limit 1=1GiB",
        "fraction() -> 0.05",
        "%gpu limit 2GiB",
        "fraction() > 0.1 -> True",
        "%gpu default",
        "fraction() -> 0.05",
        env=CEILING,
        before="own_fraction(0.05)",
    ),
    "a higher fraction of the user's own": Scene(
        "0.1 < fraction() < 0.2 -> True", env=CEILING, before="own_fraction(0.5)"
    ),
    "a fraction of the user's own, then a lower ceiling": Scene(
        "own_fraction(0.05)", "%config TfGpuMagics.ceiling = 'limit 1GiB'", "fraction() -> 0.05", env=CEILING
    ),
    "a fraction of the user's own, after words": Scene(
        "%gpu limit 4GiB", "own_fraction(0.05)", "%gpu default", "fraction() -> 0.05"
    ),
    "a lower fraction of the user's own, as an option": Scene(
        "fraction() -> 0.05",
        "os.environ['PYTORCH_CUDA_ALLOC_CONF'] -> per_process_memory_fraction:0.05",
        env={"PYTORCH_CUDA_ALLOC_CONF": "per_process_memory_fraction:0.05", **CEILING},
    ),
    "a lower fraction of the user's own, as an option that is set late": Scene(
        "import torch; os.environ['PYTORCH_ALLOC_CONF'] = 'per_process_memory_fraction:0.05'; fraction() -> 0.05",
        env=CEILING,
    ),
    "a lower fraction of the user's own, for JAX": Scene(
        "%gpu growth -> JAX takes up to 8",
        "max(jax_limits()) < 900 -> True",
        env={"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.05", **CEILING},
    ),
    "a lower fraction of the user's own, JAX, and words": Scene(
        "%gpu limit 2GiB", "jax_limits() -> [2047, 2047]", env={"XLA_CLIENT_MEM_FRACTION": "0.05", **CEILING}
    ),
    # GPUs that only TensorFlow does not see
    "a GPU that is hidden from TensorFlow": Scene(
        "%gpu limit 2GiB", f"take(1) -> {FREE}", "%tf_gpu visible 1", f"take(3) -> {CAPPED}"
    ),
    "hidden from TensorFlow, under a ceiling": Scene(
        f"take(1) -> {FREE}", "%tf_gpu visible 1", f"take(3) -> {CAPPED}", env=CEILING
    ),
    "hidden from TensorFlow, JAX awake": Scene(
        "%gpu limit 2GiB", "start_jax()", "%tf_gpu visible 1 -> `limit 2GiB; visible 1`", never="already using"
    ),
    # One framework that cannot be told
    "JAX with an allocator that heeds no limit": Scene(
        f"take(5) -> {CAPPED}",
        "jax_limits() -> [2047, 2047]",
        env={"XLA_PYTHON_CLIENT_ALLOCATOR": "platform", **CEILING},
    ),
    "JAX that is awake": Scene(
        "import torch", f"take(5) -> {CAPPED}", env=CEILING, before="start_jax()", never="NOT in force"
    ),
    "PyTorch that has more": Scene(
        f"take(1) -> {CAPPED}", "jax_limits() -> [2047, 2047]", env=CEILING, before="take(3)"
    ),
    "a driver that does not answer": Scene(BLIND, f"take(5) -> {NO_GPU}", env=CEILING),
    "a driver that does not answer, CUDA runs": Scene(
        BLIND, "import torch", f"take(1) -> {CAPPED}", env=CEILING, before="start_cuda()"
    ),
    "a look that fails": Scene(BROKEN, f"take(5) -> {NO_GPU}", env=CEILING),
    "a defect of ours": Scene(DEFECT, f"take(5) -> {NO_GPU}", env=CEILING),
    "a defect of ours, no ceiling": Scene(DEFECT, "start_jax() -> [256, 256]", env={"TFGPU_POLICY": "limit 2GiB"}),
    "a defect of ours in one framework": Scene(
        DEFECT_OF_ONE, "start_jax() -> [2304, 2304]", env={"TFGPU_POLICY": "limit 2GiB"}
    ),
    "a defect of ours in one framework, under a ceiling": Scene(DEFECT_OF_ONE, f"take(1) -> {NO_GPU}", env=CEILING),
    "a defect of ours after a line, TensorFlow takes its limit at once": Scene(
        "%gpu limit 2GiB", DEFECT, "import torch", TOUCH, "min(mib()) > 2048 -> True"
    ),
    "a defect of ours in PyTorch, which has its limit": Scene(
        "take(1)", "%gpu limit 2GiB", DEFECT_OF_ONE, "import jax", f"take(2) -> {CAPPED}"
    ),
    "a defect of ours in PyTorch, which has its limit, under a ceiling": Scene(
        "take(1)",
        "%gpu limit 2GiB",
        DEFECT_OF_ONE,
        "import jax",
        f"take(2) -> {CAPPED}",
        env={"TFGPU_CEILING": "limit 4GiB"},
    ),
    "a defect of ours in JAX, which has its limit": Scene(
        "%gpu limit 2GiB", DEFECT_OF_JAX, "import torch", "start_jax() -> [2304, 2304]"
    ),
    "a driver that does not answer, after a line": Scene(
        "%gpu limit 1GiB", BLIND, f"take(5) -> {CAPPED}", "start_jax() -> [1280, 1280]", env=CEILING
    ),
    # A ceiling that is lowered
    "lowered below what was asked": Scene(
        "import jax",
        "%gpu limit 4GiB",
        "%config TfGpuMagics.ceiling = 'limit 1GiB'",
        "start_jax() -> [1280, 1280]",
        f"take(2) -> {CAPPED}",
        env={"TFGPU_CEILING": "limit 40%"},
    ),
    "a first ceiling below what was asked": Scene(
        "import jax, torch",
        "%gpu limit 4GiB",
        "%config TfGpuMagics.ceiling = 'limit 1GiB'",
        "start_jax() -> [1280, 1280]",
        f"take(2) -> {CAPPED}",
    ),
    "lowered, JAX awake": Scene(
        "start_jax()",
        "%tf_gpu limit 2GiB",
        "%config TfGpuMagics.ceiling = 'limit 3GiB' -> so its memory cannot be changed any more. "
        "The ceiling `limit 40%; limit 3GiB` does not hold it. Restart",
        "%tf_gpu plan -> `limit 2GiB` takes effect when",
        env={"TFGPU_CEILING": "limit 40%"},
        never="%tf_gpu  ",
    ),
    "lowered, JAX awake, a policy": Scene(
        "start_jax()",
        "%config TfGpuMagics.ceiling = 'limit 3GiB'",
        "%tf_gpu plan -> `limit 2GiB` takes effect when",
        env={"TFGPU_POLICY": "limit 2GiB"},
    ),
    "lowered, TensorFlow awake": Scene(
        "import torch, tensorflow as tf; x = tf.zeros(1)",
        "%config TfGpuMagics.ceiling = 'limit 1GiB' -> TensorFlow is using the GPUs already",
        f"take(2) -> {CAPPED}",
    ),
    "lowered, TensorFlow awake, which takes no settings any more": Scene(
        f"import tensorflow as tf; {DIVIDE}; x = tf.zeros(1)",
        "%config TfGpuMagics.ceiling = 'limit 1GiB'",
        f"take(2) -> {CAPPED}",
        env={"TFGPU_CEILING": "limit 4GiB"},
    ),
    # What is said for TensorFlow is not said for the others
    "a policy, PyTorch, a line": Scene(
        "import torch", "%tf_gpu limit 1GiB", f"take(3) -> {CAPPED}", env={"TFGPU_POLICY": "limit 2GiB"}
    ),
    "a policy, a line, PyTorch": Scene(
        "%tf_gpu limit 1GiB", f"take(3) -> {CAPPED}", env={"TFGPU_POLICY": "limit 2GiB"}
    ),
    **{
        f"a policy, and then {word}": Scene(f"%gpu {word}", f"take(3) -> {FREE}", env={"TFGPU_POLICY": "limit 2GiB"})
        for word in ("default", "limit 4GiB")
    },
    "a policy of the session": Scene(
        "import torch", "%config TfGpuMagics.policy = 'limit 2GiB' -> PyTorch takes up to 2 GiB", f"take(3) -> {CAPPED}"
    ),
    "a policy of the session for TensorFlow": Scene("%config TfGpuMagics.policy = 'split 2' -> `split 2` takes effect"),
    # Keras computes with JAX
    "Keras, lowered": Scene(
        "%gpu limit 4GiB", "%config TfGpuMagics.ceiling = 'limit 2GiB'", f"{SEEN} -> : []", env=KERAS
    ),
    "Keras, after a restart": Scene(RESUME_FITS, f"{SEEN} -> : []", f"take(2) -> {CAPPED}", env=KERAS),
    # What is said
    "what is configured is no word for a restart": Scene(
        f"{SAID} -> ''", "%gpu limit 3GiB", f"{SAID} -> 'limit 3GiB'", env={"TFGPU_POLICY": "limit 5=2GiB 0=2GiB"}
    ),
    "a restart for more than there is": Scene(
        f"{RESUME} -> is NOT in force. `limit 1GiB` is, for every framework.", f"take(2) -> {CAPPED}"
    ),
    # What another thread says while an import waits for the driver
    "said during PyTorch's import": Scene(
        "%gpu limit 4GiB", "meanwhile('growth')", "import torch", f"{NOW} -> 'growth'", f"take(5) -> {CAPPED}"
    ),
    "said for every framework during PyTorch's import": Scene(
        "%gpu limit 4GiB", "meanwhile('limit 2GiB', 'all')", f"take(3) -> {CAPPED}", "%gpu plan -> `limit 2GiB`"
    ),
    "said while a configured choice is made": Scene(
        "meanwhile('limit 1GiB')", "import torch", f"{NOW} -> limit 1GiB", env={"TFGPU_POLICY": "visible 1; growth"}
    ),
    "said while a configured policy waits for TensorFlow's import": Scene(
        "meanwhile('growth')", "import tensorflow", f"{NOW} -> 'growth'", env={"TFGPU_POLICY": "limit 2GiB"}
    ),
    "Keras keeps TensorFlow from the GPUs": Scene(
        "%gpu limit 4GiB -> `limit 4GiB` holds for PyTorch and JAX, from first use on.", env={"KERAS_BACKEND": "jax"}
    ),
}


@pytest.fixture(scope="module")
def play(machine: Machine) -> Iterator[Play]:
    with stage(machine, again=True) as play:
        yield play


@pytest.mark.parametrize("name", SCENES)
def test_it_holds(play: Play, name: str) -> None:
    scene = SCENES[name]
    cells, _, told = zip(*(step.partition(" -> ") for step in scene.steps), strict=True)
    said = play(scene.env, [scene.before, "%load_ext tfgpu_magic", *cells])

    assert [(text, word) for text, word in zip(said[2:], told, strict=True) if word not in text] == []
    assert scene.never not in "\n".join(said)


@pytest.mark.parametrize("line", ["%tf_gpu limit 1GiB", "%gpu limit 1GiB"])
def test_what_is_in_force_is_said_once_whatever_was_asked_before(play: Play, line: str) -> None:
    *_, said = play({}, ["", "%load_ext tfgpu_magic", "%gpu growth", line, "import tensorflow"])
    told = [sentence for sentence in said.splitlines() if "is in force" in sentence]

    assert [sentence.partition(" is ")[0] for sentence in told] == ["tfgpu_magic: `limit 1GiB`"]


def test_a_program_that_loads_no_extension_is_held_once_it_says_a_word(play: Play) -> None:
    *_, taken = play(CEILING, ["import tfgpu_magic; made = tfgpu_magic.apply('limit 1GiB')", "take(5)"])

    assert CAPPED in taken


def test_one_limit_for_all_gpus_is_said() -> None:
    with Machine.create("8GiB,16GiB") as uneven, stage(uneven) as play:
        *_, said = play({}, ["import jax", "%load_ext tfgpu_magic", "%gpu limit 4GiB"])

    assert "JAX has one limit for all GPUs, a part of each: it takes no more than 2.0 GiB of GPU 0." in said


def test_jax_that_tensorflow_imports_is_held(machine: Machine) -> None:
    with stage(machine) as play:
        cells = ["%load_ext tfgpu_magic", "%tf_gpu limit 1GiB", "import tensorflow", "jax_limits()"]
        *_, started, limits = play(CEILING, cells)

    assert "`limit 1GiB` is in force" in started
    assert "NOT in force" not in started
    assert "[2047, 2047]" in limits
