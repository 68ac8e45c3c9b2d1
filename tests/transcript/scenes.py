"""The scenes of words: each word right, wrong, too late, not fitting; in a notebook, a session and a shell.

What is typed stands in one text, line by line between bars; a dot stands for the magic, or for `tfgpu`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.frameworks.cells_on_machine import STAND_IN
from tests.scripts.test_docs_examples import ROOT, commands
from tests.sizes import GIB, MIB
from tests.transcript.stage import Scene

LOAD = "%load_ext tfgpu_magic"
USE = "import tensorflow as tf; x = tf.zeros([2**27])"
EVERY_GPU = 'for gpu in tf.config.list_logical_devices("GPU"):\n    with tf.device(gpu.name): tf.zeros(9)'
FILL = "import tensorflow as tf\ndef train():\n    kept = [tf.zeros([2**28]) for _ in range(9)]\ntrain()"
TORCH = "import torch; x = torch.zeros(2**30, 'cuda:0')"
JAX = "import jax; jax.devices()"
BESIDE = f"import sys; sys.path.insert(0, {str(STAND_IN)!r})"
PROGRAM = "-- program.py --epochs 3"
FILE = 'policy = "pick; limit 20%"\nceiling = "limit 40%"\n'


def scene(
    title: str, lines: str, on: str = "free", *, host: Any = "kernel", magic: str = "%tf_gpu", **more: Any
) -> Scene:
    """Return a scene; in IPython it loads the extension first, unless it does so itself."""
    typed = [f"{magic} {line[1:]}".rstrip() if line[0] == "." else line for line in lines.split(" | ")]
    begin = [] if host == "shell" or LOAD in typed else [LOAD]
    return Scene(title, (*begin, *typed), on, host, **more)


notebook: Callable[..., Scene] = scene
gpu = partial(scene, magic="%gpu", setup=BESIDE)
session = partial(scene, host="session")
shell = partial(scene, host="shell", magic="tfgpu")

NOTEBOOK = [
    notebook("Nothing is said", f". | .plan | .code | .env | .default | {USE} | . | .top | .plan", "shared"),
    notebook(
        "growth: right, too late",
        f".growth | {USE} | . | .growth off | .plan growth | .growth --restart | .growth --release",
        "shared",
    ),
    notebook("growth: wrong", ".growth on | .growth 2GiB | .growth --relase | .growth; limit 2GiB | .groth"),
    notebook(
        "growth --release", f".growth --release | .limit 1GiB | .growth --release | {USE} | . | del x | .free", "shared"
    ),
    notebook(
        "limit: right",
        ".limit 1GiB | .limit 25% | .limit 0=1GiB 1=25% | .limit 2GiB --grow | "
        f".visible 1; limit 2GiB | .plan | .code | .env | .growth | .limit 1GiB | {USE} | {EVERY_GPU} | .",
        "shared",
    ),
    notebook(
        "limit: wrong",
        ".limit | .limit 1.5 | .limit 1.5GB 2GB | .limit 100GiB | .limit 7=1GiB | .limit 0 | .limit 101% | "
        ".limit -1GiB | .limit 1GiB --gorw | .limt 1GiB | .limit 2GiB; growth | .limit 0=1GiB; limit 1GiB | "
        ".plan limit 100GiB | .limit much | .limit 1KiB",
    ),
    notebook(
        "limit: not fitting",
        ".limit 40% | .limit 0=2GiB | .limit 2GiB --grow | .plan limit 40% | .code limit 40% | "
        ".visible 1; limit 40% | .env limit 40% | .visible 1; limit 40% --wait 1s | .limit 510MiB | .pick; limit 40% | "
        "%%tf_gpu isolate --gpus 1 --wait 1s limit 40%\n1 | %%tf_gpu isolate --gpus 1 pick; limit 1.1GiB\n1",
        "full",
    ),
    notebook(
        "limit: too late",
        f"{USE} | .limit 1GiB | .limit 1GiB --restart | .limit 9GiB --restart | .plan limit 1GiB | .default | "
        ".plan limit 7GiB | .code limit 1GiB | .env growth | .visible 0; limit 1GiB",
        "shared",
    ),
    notebook("too late in the same cell", "import tensorflow as tf\nx = tf.constant(1)\n%tf_gpu limit 1GiB | ."),
    notebook("too late: the first op had no room", "import tensorflow as tf\ntf.constant(1) | .growth", "full"),
    notebook(
        "split: right",
        ".split 2 | .split 1GiB 2GiB --gpu 0 | .split 4 --cpu | .split 2 --grow | .plan | .code | .env | "
        f".split 2 | {USE} | {EVERY_GPU} | . | .split 3",
        "shared",
    ),
    notebook("split: wrong", ".split | .split 0 | .split 1.5 | .split 2 --gpu 7 | .split 2GiB --cpu | .split 99"),
    notebook("split: not fitting", ".split 2 | .split 1GiB 2GiB | .split 2 --gpu 1", "full"),
    notebook(
        "visible: right, too late",
        f".visible 1 | .visible 1,0 | .visible none | .visible all | .visible 1 | .plan | {USE} | . | .visible 0",
        "shared",
    ),
    notebook(
        "visible: wrong", ".visible | .visible 7 | .visible 0,0 | .visible GPU-x | .visible one | .visible 0; pick"
    ),
    notebook(
        "pick: right",
        f".pick | .pick 2 | .pick --need 2GiB | .pick; limit 1GiB | .plan | .code | {USE} | . | .pick",
        "shared",
    ),
    notebook("pick: wrong", ".pick 0 | .pick 3 | .pick one | .pick --need | .pick --need 9GiB | .pick --cpu"),
    notebook(
        "pick: not fitting", ".pick --need 4GiB | .pick; limit 40% | .pick --need 4GiB --or-cpu; growth | .", "full"
    ),
    notebook(
        "Words that are none, or stand elsewhere",
        ".statsu | .memory | .stop | .release | .watch | .growth; status | .plan isolate | .status now | "
        ".jobs --restart | .--restart | .isolate | .help me | .code watch | .plan | .plan nothing | "
        "%%tf_gpu limit 1GiB\n1 | %%tf_gpu\n1 | .doctor | .run growth -- train.py | .limits",
    ),
    notebook("help", ".help"),
    notebook(
        "measure",
        f".measure | .measure --fit | %%tf_gpu measure\n{USE} | %%tf_gpu measure --fit\ny = x + x; del y | "
        ".measure --as m\nz = x + 1 | m | %%tf_gpu measure --fi\n1 | .measure x | %%tf_gpu measure\n1 / 0",
    ),
    notebook(
        "track",
        f".track | .track on | {USE} | y = x + x | del y | 1 | .track off | .track on --above 3GiB | z = x + x | "
        ".track up | .track on --above | .track on --above 3",
    ),
    notebook(
        "why, tensors, free",
        f".why | .tensors | .free | .visible 0; limit 2GiB | {FILL} | .why | y = tf.zeros([2**27]) | y | "
        ".tensors | .tensors --all | .free y | .free nothing | .tensors x | .why now",
        "shared",
    ),
    notebook(
        "isolate, jobs",
        ".jobs | .isolate --warm | x = 20 | %%tf_gpu isolate -o y limit 1GiB\ny = x + 1\nprint('inside')\ny | "
        "y | %%tf_gpu isolate\nprint(tf_gpu) | %%tf_gpu isolate --timeout 1h --detach\nx * 2 | _.result() | "
        ".jobs | .jobs stop 1 | .jobs halt 1 | %%tf_gpu isolate limit 40GiB\n1 | %%tf_gpu isolate -o x y\n1 | "
        "%%tf_gpu isolate --ouput x\n1 | %%tf_gpu isolate --gpus 3\n1 | %%tf_gpu isolate --timeout 3\n1 | "
        "%%tf_gpu isolate --help\n1 | %%tf_gpu isolate --gpus many\n1 | %%tf_gpu isolate -o\n1",
    ),
    notebook(
        "park",
        ".park | .unpark | .park --check | .park other.ipynb | .park --auto 20m | .park --atuo | .unpark x y | "
        "%%tf_gpu park\n1 | %config TfGpuMagics.parking = 'ask'",
    ),
    notebook("A GPU is lost", ". | .plan limit 2GiB | .limit 2GiB | .visible 1 | .pick 2", "lost"),
    notebook("MIG instances", ". | .limit 2GiB | .visible 0.2 | .visible 0 | .pick | .split 2", "MIG"),
    notebook(
        "Without a driver", ". | .limit 2GiB | .plan growth | .pick | .pick --or-cpu | .code limit 1GiB", "driverless"
    ),
    notebook("All GPUs are hidden", ". | .plan limit 2GiB | .limit 2GiB | .pick", env={"CUDA_VISIBLE_DEVICES": "-1"}),
    notebook("One GPU is shown", ". | .limit 2GiB | .visible 1 | .pick 2", env={"CUDA_VISIBLE_DEVICES": "0"}),
    notebook("A variable grows", f". | .plan | {USE} | .", env={"TF_FORCE_GPU_ALLOW_GROWTH": "true"}),
]

ADMINISTRATED = [
    notebook(
        "Policy and ceiling",
        f". | .plan | {USE} | . | .limit 90% | .code | .growth --restart | .limit 90% --restart",
        "shared",
        file=FILE,
    ),
    notebook(
        "Words under the ceiling",
        ".limit 90% | .growth | .growth off | .split 2 | .split 3GiB 3GiB | .limit 30% | "
        ".default | .plan limit 90% | .code limit 90% | .visible 1 | .growth --release | "
        "%config TfGpuMagics.ceiling = 'limit 90%' | %config TfGpuMagics.ceiling = 'limit 30%' | .limit 3GiB | "
        "%config TfGpuMagics.policy = 'growth' | %%tf_gpu isolate limit 90%\n1 | "
        "%%tf_gpu isolate --gpus 1 limit 90%\n1 | %%tf_gpu isolate --gpus 1 limit 30%\n1",
        "shared",
        file=FILE,
    ),
    notebook("A policy that does not fit", ". | import tensorflow as tf | .", "full", file='policy = "limit 40%"\n'),
    notebook("A policy that is none", ". | import tensorflow as tf | .", file='policy = "limti 40%"\n'),
    notebook("A ceiling that is none", ". | .limit 1GiB", file='ceiling = "limti 40%"\n'),
    notebook("A ceiling that says too little", ". | .limit 1GiB", file='ceiling = "little"\npark = 1\n'),
    notebook("Misspelt names", ".", file='celing = "limit 40%"\npolicys = "growth"\nparking = 3\n'),
    notebook("No TOML", ". | .limit 1GiB", file="policy = growth\n"),
    notebook(
        "Groups",
        ". | .limit 90%",
        file='[policies]\nnobody-has-it = "growth"\n[ceilings]\nnobody-has-it = "limit 20%"\n',
    ),
    notebook(
        "Variables",
        ". | .limit 90%",
        "shared",
        env={"TFGPU_POLICY": "limit 1GiB", "TFGPU_CEILING": "limit 25%"},
        file=FILE,
    ),
    notebook("A ceiling of none", ". | .limit 1GiB | .growth", file='ceiling = "visible none"\n'),
]

FRAMEWORKS = [
    gpu(
        "%gpu: right, with stand-ins for PyTorch and JAX",
        ". | .growth | .limit 2GiB | .limit 2GiB --grow | .visible 1; limit 25% | .plan | .code | .env | "
        f".split 2 | {TORCH} | {JAX} | . | .limit 3GiB",
        "shared",
    ),
    gpu("%gpu: wrong", ".limit 1.5 | .limt 2GiB | .limit 100GiB | .statsu | .default"),
    gpu("%gpu: not fitting", ".limit 40% | .visible 1; limit 2GiB | .pick --need 4GiB", "full"),
    gpu(
        "%gpu: too late",
        f"{TORCH} | {JAX} | . | .limit 2GiB | .growth | .limit 2GiB --restart | .plan limit 2GiB | .visible 1 | "
        ".tensors | .free | .measure",
        "shared",
    ),
    gpu("%gpu under a ceiling", f".growth | .limit 90% | {JAX} | {TORCH} | .", "shared", file=FILE),
    gpu("%gpu too late under a ceiling", f"{TORCH} | {JAX} | {LOAD} | . | .limit 10%", "shared", file=FILE),
    gpu("%gpu without PyTorch and JAX", ".limit 2GiB | .growth | .", setup=""),
]

PLUGIN = """\
import sys
from tfgpu_magic.simgpu.build import PYTHON, libraries
sys.path.insert(0, f"{libraries()}/{PYTHON}")
"""
REAL_TORCH = "from tests.frameworks.torch_on_machine import imported; torch = imported(); torch.cuda.init()"
REAL_JAX = "import jax; x = jax.numpy.zeros(2**24).block_until_ready()"
real = partial(scene, magic="%gpu", setup=PLUGIN)
REAL = [
    real(
        "%gpu: right",
        f". | .growth | .limit 0=2GiB 1=1GiB | .limit 2GiB | {REAL_JAX} | . | {REAL_TORCH} | . | .plan | .tensors",
        "shared",
    ),
    real(
        "%gpu: too late",
        f"{REAL_JAX} | {REAL_TORCH} | . | .limit 2GiB | .growth | .limit 2GiB --restart | .visible 1 | .free",
    ),
    real("%gpu: wrong, not fitting", ".limit 1.5 | .limit 40% | .visible 1; limit 2GiB", "full"),
    real("%gpu under a ceiling", f".limit 90% | {REAL_JAX} | {REAL_TORCH} | . | .limit 30%", "shared", file=FILE),
]

SESSION = [
    session(
        "A session",
        f". | .limit 1GiB | .limit 1.5 | .plan limit 2GiB | .growth --restart | {USE} | . | .top | .limit 2GiB | "
        ".limit 2GiB --restart | .plan limit 2GiB | .park | .measure | .track on | y = x + x | .tensors | "
        ".free | .help",
        "shared",
    ),
    session("A session: not fitting", f".limit 40% | %xmode Minimal | {FILL}", "full"),
]

SHELL = [
    shell(
        "tfgpu run",
        f'.run "visible 1; limit 40%" {PROGRAM} | .run growth {PROGRAM} | .run "limit 40" {PROGRAM} | '
        f'.run "limmit 40%" {PROGRAM} | .run "limit 2GiB" program.py 10 | .run "limit 2GiB" -- | '
        f'.run -- program.py | .run "visible 7" {PROGRAM} | .run "visible none; limit 1GiB" {PROGRAM} | '
        f'.run "limit 9GiB" {PROGRAM} | .run growth -- nothing.py | .run growth -- no-such-command | '
        ".run growth -- /etc/passwd | "
        '.run growth -- sh -c "echo $TF_FORCE_GPU_ALLOW_GROWTH $TFGPU_POLICY; exit 7" | '
        f'.run "limit 40%" -- echo hello | .run "split 2" -- echo hello | .run --wait 10 growth {PROGRAM} | .run',
        "shared",
    ),
    shell(
        "tfgpu run: not fitting",
        f'.run "limit 40%" {PROGRAM} | .run --wait 1s "visible 0; limit 40%" {PROGRAM} | '
        f'.run "pick --need 6GiB" {PROGRAM} | .run "pick --need 6GiB --or-cpu" {PROGRAM}',
        "full",
    ),
    shell(
        "tfgpu run: under a file",
        f'.run "limit 90%" {PROGRAM} | .run growth {PROGRAM} | .run growth -- echo hello',
        "shared",
        file=FILE,
    ),
    shell(
        "tfgpu plan, env, status",
        '.plan "visible 1; limit 40%" | .plan "limit 7GiB" | .plan "limt 7GiB" | .plan | '
        '.env "visible 1; growth" | .env "limit 2GiB" | .env "limit 7GiB" | .status | .status --xml | '
        ".status -- x.py | .-- x.py | .top",
        "shared",
    ),
    shell("Without a driver", f'.status | .plan "limit 1GiB" | .top | .run growth {PROGRAM}', "driverless"),
    shell("A lost GPU", '.status | .plan "limit 1GiB"', "lost"),
    shell("MIG instances", '.status | .plan "limit 1GiB"', "MIG"),
    shell(
        "Help",
        ".help | .help run | .help plan | .help env | .help status | .help top | .help demo | .help doctor | "
        ".help collect | .help exporter | .help limits",
    ),
    shell(
        "For administrators",
        ".limits --once --clear | .exporter --port x | .exporter --cert x | .collect now | .isolate | .limit 2GiB | "
        ".limmit 2GiB",
    ),
]

LIMITED = """.run "limit 1GiB" -- -c \""""
GPU = "import tensorflow as tf; gpu = tf.config.list_physical_devices('GPU')[0]; tf.config"
PAGE_ON_SCRIPTS = ROOT / "docs" / "scripts.md"
PAGE = [
    shell(
        "Each command of the page on scripts; of its minutes of waiting, a second",
        " | ".join(f".{one.replace('10m', '1s')}" for one in dict.fromkeys(commands(PAGE_ON_SCRIPTS.read_text()))),
        "of the pages",
    ),
    *(
        shell(
            f"Behind -- with `{policy}`",
            " | ".join(f'.run "visible 1; {policy}" -- {program}' for program in programs.split(" | ")),
        )
        for policy, programs in (
            ("limit 40%", "program.py a b | package a b | -m package a b | -c 'print(40)' | python -O program.py a b"),
            ("limit 40%", "./torchrun a | torchrun a | jupyter lab | make | nohup python program.py"),
            ("limit 40%", "python nothing.py | -m nothing"),
            ("growth", "sh -c 'exec program.py a' | nohup python program.py | make"),
        )
    ),
    shell(
        "A program's own settings",
        f'{LIMITED}{GPU}.experimental.set_memory_growth(gpu, True); print(tf.zeros(1))" | '
        f'{LIMITED}{GPU}.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(9)]); tf.zeros(1)"'
        f" | {LIMITED}import os; os.environ['CUDA_VISIBLE_DEVICES'] = '1'; import tensorflow as tf; tf.zeros(1)\"",
    ),
    shell(
        "In the script",
        """python says.py "apply('pick; limit 4GiB').notes" | python says.py "plan('pick').notes" | """
        """python says.py "apply('limit 14GiB')" | python says.py "apply('limit')" | python says.py "status()" | """
        """python says.py "plan('limti 4GiB')" | python says.py "apply('limit 4GiB', frameworks='all')" | """
        """python says.py "apply('split 2').notes\"""",
        "of the pages",
    ),
]

LIMITS = '[limits]\nhard = "40%"\n'
USERS, UNITS = "sys/fs/cgroup/user", "etc/systemd/system/multi-user.target.wants"
HOST = {
    "proc/meminfo": f"MemTotal: {16 * MIB} kB\nMemAvailable: {12 * MIB} kB\nSwapFree: 0 kB\n",
    "proc/self/cgroup": "0::/user\n",
}
DOCTOR = [
    *(
        shell(f"A machine: {on}", "doctor Driver 'Kernel module' GPU CUDA Pids TensorFlow", on)
        for on in ("shared", "full", "lost", "MIG", "driverless")
    ),
    shell("Hidden", "doctor CUDA Pids TensorFlow", env={"CUDA_VISIBLE_DEVICES": "-1"}),
    shell("No policy", "doctor Policy"),
    shell("Policy and ceiling", "doctor Policy", env={"TFGPU_POLICY": "limit 1GiB", "TFGPU_CEILING": "limit 40%"}),
    shell("A policy that is none", "doctor Policy", env={"TFGPU_POLICY": "limti 40%"}),
    shell("A ceiling that is none", "doctor Policy", env={"TFGPU_CEILING": "little"}),
    shell("Hours", "doctor Limits 'Idle notebooks'", file='[idle]\nnotify = "1h"\nstop = "4h"\n'),
    shell("Wrong", "doctor Limits 'Idle notebooks'", file='[limits]\nhard = "much"\n[idle]\nstop = "4h"\n'),
    shell("No TOML", "doctor Limits 'Idle notebooks'", file="idle = never\n"),
    shell("Limits, and no service", "doctor Limits", file=LIMITS),
    shell(
        "Limits that are not in force",
        "doctor Limits",
        file=LIMITS,
        files={"run/tfgpu_limits/limits.json": '{"limits": {"/a": {"GPU-0": [0, 9, "lost"]}}, "left": {"/b": ""}}'},
    ),
    shell("Versions", "doctor This"),
    shell("Variables", "doctor Environment", env={"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TFGPU_POLICY": "limit 40%"}),
    *(
        shell(f"Memory: {title}", "doctor Memory", files={**HOST, **files})
        for title, files in {
            "much": {},
            "little": {"proc/meminfo": f"MemTotal: {16 * MIB} kB\nMemAvailable: {MIB} kB\n"},
            "little in a cgroup": {f"{USERS}/memory.max": f"{4 * GIB}", f"{USERS}/memory.current": f"{3 * GIB}"},
            "page cache": {
                f"{USERS}/memory.max": f"{8 * GIB}",
                f"{USERS}/memory.current": f"{7 * GIB}",
                f"{USERS}/memory.stat": f"inactive_file {6 * GIB}\n",
            },
        }.items()
    ),
    shell("A board", "mkdir -m 755 board | doctor Board | chmod 700 board | doctor Board"),
    shell(
        "A service is away, and a port is open",
        "doctor Board",
        files={f"{UNITS}/tfgpu-exporter.service": "", "sys/fs/cgroup/system.slice/tfgpu-collector.service/x": ""},
    ),
]

WORDS = {
    "In a notebook": NOTEBOOK,
    "Under an administrator's file": ADMINISTRATED,
    "For every framework": FRAMEWORKS,
    "In a session": SESSION,
    "In a shell": SHELL,
}
FACTS = {"What the page on scripts says": PAGE, "The doctor": DOCTOR}
"""The parts of the transcript that scenes have."""
