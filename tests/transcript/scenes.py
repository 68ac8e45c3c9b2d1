"""The scenes of words: each word right, wrong, too late, not fitting; in a notebook, a session and a shell."""

from __future__ import annotations

import shlex
from functools import partial

from tests.frameworks.cells_on_machine import STAND_IN
from tests.scripts.test_docs_examples import ROOT, commands
from tests.transcript.stage import Scene

USE = "import tensorflow as tf; x = tf.zeros([2**27])"
EVERY_GPU = 'for gpu in tf.config.list_logical_devices("GPU"):\n    with tf.device(gpu.name): tf.zeros(9)'
FILL = "import tensorflow as tf\ndef train():\n    kept = [tf.zeros([2**28]) for _ in range(9)]\ntrain()"


def said(*lines: str, magic: str = "%tf_gpu") -> tuple[str, ...]:
    """Return cells that load the extension and run each line; one that begins with a dot has words of the magic."""
    return ("%load_ext tfgpu_magic", *(f"{magic} {one[1:]}".rstrip() if one[0] == "." else one for one in lines))


gpu = partial(said, magic="%gpu")

NOTEBOOK = [
    Scene("Nothing is said", said(".", ".plan", ".code", ".env", ".default", USE, ".", ".top", ".plan"), "shared"),
    Scene(
        "growth: right, too late",
        said(".growth", USE, ".", ".growth off", ".plan growth", ".growth --restart", ".growth --release"),
        "shared",
    ),
    Scene("growth: wrong", said(".growth on", ".growth 2GiB", ".growth --relase", ".growth; limit 2GiB", ".groth")),
    Scene(
        "growth --release",
        said(".growth --release", ".limit 1GiB", ".growth --release", USE, ".", "del x", ".free"),
        "shared",
    ),
    Scene(
        "limit: right",
        said(
            *(".limit 1GiB", ".limit 25%", ".limit 0=1GiB 1=25%", ".limit 2GiB --grow", ".limit fair"),
            *(".visible 1; limit 2GiB", ".plan", ".code", ".env", ".growth", ".limit 1GiB", USE, EVERY_GPU, "."),
        ),
        "shared",
    ),
    Scene(
        "limit: wrong",
        said(
            *(".limit", ".limit 1.5", ".limit 1.5GB 2GB", ".limit 100GiB", ".limit 7=1GiB", ".limit 0", ".limit 101%"),
            *(".limit -1GiB", ".limit 1GiB --gorw", ".limt 1GiB", ".limit 2GiB; growth", ".limit 0=1GiB; limit 1GiB"),
            *(".plan limit 100GiB", ".limit much", ".limit 1KiB"),
        ),
    ),
    Scene(
        "limit: not fitting",
        said(
            *(".limit 40%", ".limit 0=2GiB", ".limit 2GiB --grow", ".limit fair", ".plan limit 40%", ".code limit 40%"),
            *(".visible 1; limit 40%", ".env limit 40%", ".limit 510MiB"),
        ),
        "full",
    ),
    Scene(
        "limit: too late",
        said(
            *(USE, ".limit 1GiB", ".limit 1GiB --restart", ".limit 9GiB --restart", ".plan limit 1GiB", ".default"),
            *(".plan limit 7GiB", ".code limit 1GiB", ".env growth", ".visible 0; limit 1GiB"),
        ),
        "shared",
    ),
    Scene("too late in the same cell", said("import tensorflow as tf\nx = tf.constant(1)\n%tf_gpu limit 1GiB", ".")),
    Scene("too late: the first op had no room", said("import tensorflow as tf\ntf.constant(1)", ".growth"), "full"),
    Scene(
        "split: right",
        said(
            *(".split 2", ".split 1GiB 2GiB --gpu 0", ".split 4 --cpu", ".split 2 --grow", ".plan", ".code", ".env"),
            *(".split 2", USE, EVERY_GPU, ".", ".split 3"),
        ),
        "shared",
    ),
    Scene(
        "split: wrong", said(".split", ".split 0", ".split 1.5", ".split 2 --gpu 7", ".split 2GiB --cpu", ".split 99")
    ),
    Scene("split: not fitting", said(".split 2", ".split 1GiB 2GiB", ".split 2 --gpu 1"), "full"),
    Scene(
        "visible: right, too late",
        said(
            ".visible 1", ".visible 1,0", ".visible none", ".visible all", ".visible 1", ".plan", USE, ".", ".visible 0"
        ),
        "shared",
    ),
    Scene(
        "visible: wrong",
        said(".visible", ".visible 7", ".visible 0,0", ".visible GPU-x", ".visible one", ".visible 0; pick"),
    ),
    Scene(
        "pick: right",
        said(".pick", ".pick 2", ".pick --need 2GiB", ".pick; limit 1GiB", ".plan", ".code", USE, ".", ".pick"),
        "shared",
    ),
    Scene("pick: wrong", said(".pick 0", ".pick 3", ".pick one", ".pick --need", ".pick --need 9GiB", ".pick --cpu")),
    Scene(
        "pick: not fitting",
        said(".pick --need 4GiB", ".pick; limit 40%", ".pick --need 4GiB --or-cpu; growth", "."),
        "full",
    ),
    Scene(
        "Words that are none, or stand elsewhere",
        said(
            *(".statsu", ".memory", ".stop", ".release", ".watch", ".growth; status", ".plan isolate", ".status now"),
            *(".jobs --restart", ".--restart", ".isolate", ".help me", ".code watch", ".plan", ".plan nothing"),
            *("%%tf_gpu limit 1GiB\n1", "%%tf_gpu\n1"),
        ),
    ),
    Scene("help", said(".help")),
    Scene(
        "measure",
        said(
            *(".measure", ".measure --fit", f"%%tf_gpu measure\n{USE}", "%%tf_gpu measure --fit\ny = x + x; del y"),
            *(
                "%tf_gpu measure --as m\nz = x + 1",
                "m",
                "%%tf_gpu measure --fi\n1",
                ".measure x",
                "%%tf_gpu measure\n1 / 0",
            ),
        ),
    ),
    Scene(
        "track",
        said(
            *(
                ".track",
                ".track on",
                USE,
                "y = x + x",
                "del y",
                "1",
                ".track off",
                ".track on --above 3GiB",
                "z = x + x",
            ),
            *(".track up", ".track on --above", ".track on --above 3"),
        ),
    ),
    Scene(
        "why, tensors, free",
        said(
            *(
                ".why",
                ".tensors",
                ".free",
                ".visible 0; limit 2GiB",
                FILL,
                ".why",
                "y = tf.zeros([2**27])",
                "y",
                ".tensors",
            ),
            *(".tensors --all", ".free y", ".free nothing", ".tensors x", ".why now"),
        ),
        "shared",
    ),
    Scene(
        "isolate, jobs",
        said(
            *(
                ".jobs",
                ".isolate --warm",
                "x = 20",
                "%%tf_gpu isolate -o y limit 1GiB\ny = x + 1\nprint('inside')\ny",
                "y",
            ),
            *(
                "%%tf_gpu isolate\nprint(tf_gpu)",
                "%%tf_gpu isolate --timeout 1h --detach\nx * 2",
                "_.result()",
                ".jobs",
            ),
            *(".jobs stop 1", ".jobs halt 1", "%%tf_gpu isolate limit 40GiB\n1", "%%tf_gpu isolate -o x y\n1"),
            *("%%tf_gpu isolate --ouput x\n1", "%%tf_gpu isolate --gpus 3\n1", "%%tf_gpu isolate --timeout 3\n1"),
            *("%%tf_gpu isolate --help\n1", "%%tf_gpu isolate --gpus many\n1", "%%tf_gpu isolate -o\n1"),
        ),
    ),
    Scene(
        "park, which is off",
        said(
            ".park",
            ".unpark",
            ".park --check",
            ".park other.ipynb",
            ".park --auto 20m",
            ".park --to disk",
            ".park --atuo",
        ),
    ),
    Scene(
        "park, which is on",
        said(
            *(
                "%config TfGpuMagics.parking = 'ask'",
                ".park --check",
                ".park",
                ".unpark",
                ".park --auto 20m",
                ".park --auto 20",
            ),
            *(
                ".park --auto 20m --when-needed",
                ".park --to disk",
                ".park nobody.ipynb",
                ".unpark nobody.ipynb",
                ".",
                ".unpark x y",
            ),
        ),
    ),
    Scene("A GPU is lost", said(".", ".plan limit 2GiB", ".limit 2GiB", ".visible 1", ".pick 2"), "lost"),
    Scene("MIG instances", said(".", ".limit 2GiB", ".visible 0.2", ".visible 0", ".pick", ".split 2"), "MIG"),
    Scene(
        "Without a driver",
        said(".", ".limit 2GiB", ".plan growth", ".pick", ".pick --or-cpu", ".code limit 1GiB"),
        "driverless",
    ),
    Scene(
        "All GPUs are hidden", said(".", ".plan limit 2GiB", ".limit 2GiB", ".pick"), env={"CUDA_VISIBLE_DEVICES": "-1"}
    ),
    Scene("One GPU is shown", said(".", ".limit 2GiB", ".visible 1", ".pick 2"), env={"CUDA_VISIBLE_DEVICES": "0"}),
    Scene("A variable grows", said(".", ".plan", USE, "."), env={"TF_FORCE_GPU_ALLOW_GROWTH": "true"}),
]

FILE = 'policy = "pick; limit 20%"\nceiling = "limit 40%"\n'
ADMINISTRATED = [
    Scene(
        "Policy and ceiling",
        said(".", ".plan", USE, ".", ".limit 90%", ".code", ".growth --restart", ".limit 90% --restart"),
        on="shared",
        file=FILE,
    ),
    Scene(
        "Words under the ceiling",
        said(
            *(
                ".limit 90%",
                ".growth",
                ".growth off",
                ".split 2",
                ".split 3GiB 3GiB",
                ".limit fair",
                ".limit 30%",
                ".default",
            ),
            *(
                ".plan limit 90%",
                ".code limit 90%",
                ".visible 1",
                ".growth --release",
                "%config TfGpuMagics.ceiling = 'limit 90%'",
            ),
            *("%config TfGpuMagics.ceiling = 'limit 30%'", ".limit 3GiB", "%config TfGpuMagics.policy = 'growth'"),
            "%%tf_gpu isolate limit 90%\n1",
        ),
        on="shared",
        file=FILE,
    ),
    Scene(
        "A policy that does not fit", said(".", "import tensorflow as tf", "."), "full", file='policy = "limit 40%"\n'
    ),
    Scene("A policy that is none", said(".", "import tensorflow as tf", "."), file='policy = "limti 40%"\n'),
    Scene("A ceiling that is none", said(".", ".limit 1GiB"), file='ceiling = "limti 40%"\n'),
    Scene("A ceiling that says too little", said(".", ".limit 1GiB"), file='ceiling = "little"\npark = 1\n'),
    Scene("Misspelt names", said("."), file='celing = "limit 40%"\npolicys = "growth"\nparking = 3\n'),
    Scene("No TOML", said(".", ".limit 1GiB"), file="policy = growth\n"),
    Scene(
        "Groups",
        said(".", ".limit 90%"),
        file='[policies]\nnobody-has-it = "growth"\n[ceilings]\nnobody-has-it = "limit 20%"\n',
    ),
    Scene(
        "Variables",
        said(".", ".limit 90%"),
        env={"TFGPU_POLICY": "limit 1GiB", "TFGPU_CEILING": "limit 25%"},
        on="shared",
        file=FILE,
    ),
    Scene("A ceiling of none", said(".", ".limit 1GiB", ".growth"), file='ceiling = "visible none"\n'),
]

BESIDE = f"import sys; sys.path.insert(0, {str(STAND_IN)!r})"
TORCH = "import torch; x = torch.zeros(2**30, 'cuda:0')"
JAX = "import jax; jax.devices()"
FRAMEWORKS = [
    Scene(
        "%gpu: right, with stand-ins for PyTorch and JAX",
        gpu(
            ".",
            ".growth",
            ".limit 2GiB",
            ".limit 2GiB --grow",
            ".visible 1; limit 25%",
            ".plan",
            ".code",
            ".env",
            ".split 2",
            TORCH,
            JAX,
            ".",
            ".limit 3GiB",
        ),
        "shared",
        setup=BESIDE,
    ),
    Scene("%gpu: wrong", gpu(".limit 1.5", ".limt 2GiB", ".limit 100GiB", ".statsu", ".default"), setup=BESIDE),
    Scene("%gpu: not fitting", gpu(".limit 40%", ".visible 1; limit 2GiB", ".pick --need 4GiB"), "full", setup=BESIDE),
    Scene(
        "%gpu: too late",
        gpu(
            TORCH,
            JAX,
            ".",
            ".limit 2GiB",
            ".growth",
            ".limit 2GiB --restart",
            ".plan limit 2GiB",
            ".visible 1",
            ".tensors",
            ".free",
            ".measure",
        ),
        "shared",
        setup=BESIDE,
    ),
    Scene("%gpu under a ceiling", gpu(".growth", ".limit 90%", JAX, TORCH, "."), on="shared", file=FILE, setup=BESIDE),
    Scene("%gpu too late under a ceiling", (TORCH, JAX, *gpu(".", ".limit 10%")), on="shared", file=FILE, setup=BESIDE),
    Scene("%gpu without PyTorch and JAX", gpu(".limit 2GiB", ".growth", ".")),
]

SESSION = [
    Scene(
        "A session",
        said(
            ".",
            ".limit 1GiB",
            ".limit 1.5",
            ".plan limit 2GiB",
            ".growth --restart",
            USE,
            ".",
            ".top",
            ".limit 2GiB",
            ".limit 2GiB --restart",
            ".plan limit 2GiB",
            ".park",
            ".measure",
            ".track on",
            "y = x + x",
            ".tensors",
            ".free",
            ".help",
        ),
        "shared",
        host="session",
    ),
    Scene("A session: not fitting", said(".limit 40%", "%xmode Minimal", FILL), "full", host="session"),
]

PROGRAM = "-- program.py --epochs 3"
SHELL = [
    Scene(
        "tfgpu run",
        (
            f'tfgpu run "visible 1; limit 40%" {PROGRAM}',
            f"tfgpu run growth {PROGRAM}",
            f'tfgpu run "limit 40" {PROGRAM}',
            f'tfgpu run "limmit 40%" {PROGRAM}',
            'tfgpu run "limit 2GiB" program.py 10',
            'tfgpu run "limit 2GiB" --',
            "tfgpu run -- program.py",
            f'tfgpu run "visible 7" {PROGRAM}',
            f'tfgpu run "visible none; limit 1GiB" {PROGRAM}',
            f'tfgpu run "limit 9GiB" {PROGRAM}',
            "tfgpu run growth -- nothing.py",
            "tfgpu run growth -- no-such-command",
            "tfgpu run growth -- /etc/passwd",
            'tfgpu run growth -- sh -c "echo $TF_FORCE_GPU_ALLOW_GROWTH $TFGPU_POLICY; exit 7"',
            'tfgpu run "limit 40%" -- echo hello',
            'tfgpu run "split 2" -- echo hello',
            f"tfgpu run --wait 10 growth {PROGRAM}",
            "tfgpu run",
        ),
        "shared",
        "shell",
    ),
    Scene(
        "tfgpu run: not fitting",
        (
            f'tfgpu run "limit 40%" {PROGRAM}',
            f'tfgpu run --wait 1s "visible 0; limit 40%" {PROGRAM}',
            f'tfgpu run "pick --need 6GiB" {PROGRAM}',
            f'tfgpu run "pick --need 6GiB --or-cpu" {PROGRAM}',
        ),
        "full",
        "shell",
    ),
    Scene(
        "tfgpu run: under a file",
        (f'tfgpu run "limit 90%" {PROGRAM}', f"tfgpu run growth {PROGRAM}", "tfgpu run growth -- echo hello"),
        host="shell",
        on="shared",
        file=FILE,
    ),
    Scene(
        "tfgpu plan, env, status",
        (
            *('tfgpu plan "visible 1; limit 40%"', 'tfgpu plan "limit 7GiB"', 'tfgpu plan "limt 7GiB"', "tfgpu plan"),
            *('tfgpu env "visible 1; growth"', 'tfgpu env "limit 2GiB"', 'tfgpu env "limit 7GiB"', "tfgpu status"),
            *("tfgpu status --xml", "tfgpu statsu", "tfgpu status -- x.py", "tfgpu -- x.py", "tfgpu top"),
        ),
        "shared",
        "shell",
    ),
    Scene(
        "Without a driver",
        ("tfgpu status", 'tfgpu plan "limit 1GiB"', "tfgpu top", f"tfgpu run growth {PROGRAM}"),
        "driverless",
        "shell",
    ),
    Scene("A lost GPU, and MIG instances", ("tfgpu status", 'tfgpu plan "limit 1GiB"'), "lost", "shell"),
    Scene("MIG instances", ("tfgpu status", 'tfgpu plan "limit 1GiB"'), "MIG", "shell"),
    Scene(
        "Help",
        (
            "tfgpu help",
            *(
                f"tfgpu help {name}"
                for name in (
                    "run",
                    "plan",
                    "env",
                    "status",
                    "top",
                    "demo",
                    "doctor",
                    "collect",
                    "exporter",
                    "hub",
                    "limits",
                    "probe",
                )
            ),
        ),
        host="shell",
    ),
    Scene(
        "For administrators",
        (
            "tfgpu limits --once --clear",
            "tfgpu exporter --port x",
            "tfgpu exporter --cert x",
            "tfgpu hub",
            "tfgpu probe",
            "tfgpu collect now",
        ),
        host="shell",
    ),
]

LIMITS = "import tensorflow as tf; gpu = tf.config.list_physical_devices('GPU')[0]; "
OWN = [
    f"{LIMITS}tf.config.experimental.set_memory_growth(gpu, True); print(tf.zeros(1))",
    f"{LIMITS}tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=99)])",
    "import os; os.environ['CUDA_VISIBLE_DEVICES'] = '1'; import tensorflow as tf; tf.zeros(1)",
]
PAGE = [
    Scene(
        "Each command of the page on scripts; of its minutes of waiting, a second",
        tuple(
            f"tfgpu {command.replace('10m', '1s')}" for command in commands((ROOT / "docs" / "scripts.md").read_text())
        ),
        "of the pages",
        "shell",
    ),
    Scene(
        "What stands behind --, row by row",
        tuple(
            f'tfgpu run "visible 1; {policy}" -- {program}'
            for policy, program in (
                *(("limit 40%", one) for one in ("program.py a b", "package a b", "-m package a b", "-c 'print(40)'")),
                *(
                    ("limit 40%", one)
                    for one in ("python -O program.py a", "./torchrun a", "torchrun a", "jupyter lab")
                ),
                *(("growth", one) for one in ("sh -c 'exec program.py a'", "nohup python program.py", "make")),
                *(("limit 40%", one) for one in ("make", "nohup python program.py", "python nothing.py", "-m nothing")),
            )
        ),
        host="shell",
    ),
    Scene("A program's own settings", tuple(f'tfgpu run "limit 1GiB" -- -c "{one}"' for one in OWN), host="shell"),
    Scene(
        "In the script",
        tuple(
            f"python says.py {shlex.quote(call)}"
            for call in (
                *("apply('pick; limit 4GiB')", "plan('pick; limit 4GiB')", "apply('limit 14GiB')", "apply('limit')"),
                *("status()", "plan('limti 4GiB')", "apply('limit 4GiB', frameworks='all')", "apply('split 2')"),
            )
        ),
        "of the pages",
        "shell",
    ),
]

SEEN = ("Driver", "'Kernel module'", "GPU", "CUDA", "Pids", "TensorFlow")
DOCTOR = [
    *(
        Scene(f"{on.capitalize()}", (f"doctor {' '.join(SEEN)}",), on, "shell")
        for on in ("shared", "full", "lost", "MIG", "driverless")
    ),
    Scene("Hidden", ("doctor CUDA Pids TensorFlow",), host="shell", env={"CUDA_VISIBLE_DEVICES": "-1"}),
    *(
        Scene(title, ("doctor Policy Limits 'Idle notebooks'",), host="shell", file=file)
        for title, file in (
            ("No file", ""),
            ("A file", FILE),
            (
                "Mistakes",
                'policy = "limti 40%"\nceiling = "little"\nparks = 1\n[limits]\nhard = "much"\n[idle]\nstop = "4h"\n',
            ),
            ("No TOML", "policy = growth\n"),
            ("Hours and a bound", '[idle]\nnotify = "1h"\nstop = "4h"\n[bound]\nhard = "40%"\n'),
        )
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
