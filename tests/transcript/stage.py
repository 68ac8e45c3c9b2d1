"""Plays scenes: cells in a real kernel or session, forked where TensorFlow was imported, and commands in a shell."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from scripts._notebooks import PATIENT
from tests.jupyter import LEAN
from tests.processes import ENVIRONMENT, PATIENCE, QUIET, run
from tests.waiting import until
from tfgpu_magic.ground.process_kind import SIMULATED_USER
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.simgpu.demo.machine import KERNEL, as_notebook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from jupyter_client.blocking.client import BlockingKernelClient

RULES = {
    "time": (r" +(?:\d+\.\d+ s|\d+ ms)\b", " <time>"),
    "version": (
        r"(?i)\b(tensorflow|pytorch|jax|tfgpu(?:_magic)?|i?python|linux|(?:ipyk|jupyt|note)\w+) \d+(?:\.[\w+-]+)+",
        r"\1 <version>",
    ),
    "version in a metric": (r'\bversion="[^"]+"', 'version="<version>"'),
    "pid in a column": (r"(?m)^( GPU|  +[\d.]+) +(?:PID|\d+)(?=  Type| +[CGM]  )", r"\1  <pid>"),
    "what stands below a pid": (r"(?m)^ {15,}(?=PyTorch|JAX)", " " * 20),
    "pid in a terminal": (r"(?m)^ {5,11}(?:PID|\d+)(?=  (?:Owner|[a-z]))", "       <pid>"),
    "time in a column": (r"(?m)^( Job  State) +(?=Time)", r"\1  "),
    "pid in a sentence": (r"\b(pid|process) \d+", r"\1 <pid>"),
    "time in JSON": (r'("(?:time|active|unused|began|since)": ?|"times": \[\s*)[\d.]+', r"\1<time>"),
    "uuid": (r"\b(GPU|MIG)-[0-9a-f]{8}[0-9a-f-]{28}\b", r"\1-<uuid>"),
    "place in JSON": (r'("(?:sequence|tone)": ?)\d+', r"\1<n>"),
    "pid in JSON": (r'("pid": ?|"kernel": ?|"[\d.]+ )\d+', r"\1<pid>"),
    "clock": (r"\b\d\d:\d\d:\d\d\b", "<clock>"),
    "address": (r"\b0x[0-9a-f]{6,}|127\.0\.0\.1:\d{5}", "<address>"),
    "age in a page": (r"(?m)^(?:idle|unused)(?: \d+ min)?$", "idle <time>"),
    "pace in a page": (r"(?m)^live · \d+ s$", "live"),
    "pace in a terminal": (r"\blive · \d+ s\b", "live · <time>"),
    "temperature": (r"\d+ °C", "<temperature>"),
}
"""What differs from run to run, by its name: a pattern, and what stands for it."""


SETUP = """\
import os, pathlib
from tfgpu_magic import policy
from tfgpu_magic.machine import see
from tfgpu_magic.root import trust
see._SLOW_AFTER = 60.0
policy.FILE = pathlib.Path({file!r})
trust.ROOT = os.getuid()
os.chdir({here!r})
"""
"""Has a scene wait for its figures without a word, and read its own administrator's file, whoever plays it."""

_PROGRAM = """\
#!{python}
import os, sys
names = "CUDA_VISIBLE_DEVICES", "TF_FORCE_GPU_ALLOW_GROWTH", "TFGPU_POLICY"
print("The program runs:", *sys.argv[1:], *(f"{{name}}={{os.environ[name]}}" for name in names if name in os.environ))
"""
_SAYS = """\
import sys, tfgpu_magic
try:
    print(eval(f"tfgpu_magic.{{sys.argv[1]}}"))
except tfgpu_magic.TfGpuError as error:
    print(f"{{type(error).__name__}}: {{error}}")
"""
PROGRAMS = ("program.py", "program_1.py", "program_2.py", "program_3.py", "train", "jupyter", "torchrun")
FILES = {
    **dict.fromkeys((*PROGRAMS, "package/__main__.py"), _PROGRAM),
    "make": "#!/bin/sh\necho It is made: $CUDA_VISIBLE_DEVICES, $TF_FORCE_GPU_ALLOW_GROWTH, $TFGPU_POLICY\n",
    "says.py": _SAYS,
}
"""What lies where a scene plays: programs that say what they have, and one that says what a call returns."""

COMMANDS = {
    "tfgpu": "import sys; from tfgpu_magic.command.main import main; sys.exit(main())",
    "doctor": """\
import sys
from tfgpu_magic.doctor.checks.table import CHECKS, run_check
from tfgpu_magic.doctor.finding import REPORT
from tfgpu_magic.doctor.machine import ThisMachine
os.cpu_count = lambda: 8
scene = {name: os.environ[name] for name in os.environ["TFGPU_TEST_SCENE"].split()}
for here, title in [(ThisMachine(pathlib.Path("root"), scene), title) for title in sys.argv[1:]]:
    for one in run_check(CHECKS[title], here):
        then = REPORT.next(one).splitlines()
        print(f"{title}, {one.severity.value}: {REPORT.found(one)}", *then, sep="\\n    -> ")
""",
}
"""The commands of this package, as Python: `tfgpu`, and its doctor's findings by title, as lines that are not cut."""

MARKS = {"kernel": "In: ", "session": ">>> ", "shell": "$ "}


class Scene(NamedTuple):
    """What somebody types, and where.

    Attributes:
        title: what it shows.
        lines: cells of a kernel or a session, or commands of a shell.
        on: the machine, by its name in `MACHINES`.
        host: what they are typed into.
        env: variables that are set.
        file: the administrator's file; empty is none.
        setup: Python that a kernel or a session runs before.
        files: what the doctor finds of the machine's files, by path; the administrator's is there too.
    """

    title: str
    lines: tuple[str, ...]
    on: str = "free"
    host: Literal["kernel", "session", "shell"] = "kernel"
    env: Mapping[str, str] = {}
    file: str = ""
    setup: str = ""
    files: Mapping[str, str] = {}


MACHINES: dict[str, tuple[str, tuple[str, ...], Callable[[Machine], object]]] = {
    "free": ("2x8GiB", (), lambda _: None),
    "shared": ("2x8GiB", ("train.ipynb 3GiB@1", " 2GiB@0"), lambda _: None),
    "of the pages": ("4x16GiB", ("train.ipynb 9GiB@1", " 12GiB@2"), lambda _: None),
    "full": ("2x8GiB", ("train.ipynb 7GiB@0", " 5GiB@1"), lambda _: None),
    "lost": ("2x8GiB", (), lambda machine: machine.lose(1)),
    "MIG": ("40GiB:mig=2", (), lambda _: None),
    "driverless": ("1x8GiB", (), lambda machine: machine.remove_driver()),
}
"""GPUs; who holds what of them, a notebook or else another user; and what has happened to it."""


def play(scenes: Sequence[Scene], folder: Path) -> str:
    """Play scenes, three at a time as most of a scene is waiting, and return what is read."""
    with ThreadPoolExecutor(3) as threads:
        return "\n".join(threads.map(partial(_play, folder), range(len(scenes)), scenes))


def _play(folder: Path, number: int, scene: Scene) -> str:
    here = folder / str(number)
    here.mkdir(parents=True)
    programs = {name: text.format(python=sys.executable) for name, text in FILES.items()}
    root = {f"root/{name}": text for name, text in {**scene.files, "etc/tfgpu_magic.toml": scene.file}.items()}
    for name, text in {**programs, **root}.items():
        file = here / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    file = here / "tfgpu_magic.toml"
    file.write_text(scene.file)
    env = {
        **QUIET, SIMULATED_USER: "maria", "TFGPU_MAGIC_DIR": str(here / "board"), "JPY_SESSION_NAME": "eval.ipynb",
        "TFGPU_TEST_SCENE": " ".join(scene.env),
        "PYTHONPATH": os.pathsep.join([str(LEAN), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PATH": os.pathsep.join([str(here), str(Path(sys.executable).parent), os.environ["PATH"]]), **scene.env,
    }  # fmt: skip
    setup = f"{PATIENT}\n{SETUP.format(file=str(file), here=str(here))}\n"
    with machine_of(*MACHINES[scene.on]) as machine:
        if scene.host == "shell":
            said = [_shell(machine, setup, here, line, env) for line in scene.lines]
        else:
            play = _in_kernel if scene.host == "kernel" else _in_session
            said = run(machine, play, f"{setup}\n{scene.setup}", *scene.lines, env=env, imported=False)
    parts = [f"=== {scene.title} ({', '.join([scene.host, scene.on, *(f'{k}={v}' for k, v in scene.env.items())])})"]
    parts += scene.file.splitlines()
    for line, text in zip(scene.lines, said, strict=True):
        parts += [MARKS[scene.host] + line.replace("\n", "\n    "), *(row.rstrip() for row in text.splitlines())]
    return alike("\n".join(parts) + "\n", {str(here): "<folder>", sys.executable: "<python>", sys.prefix: "<prefix>"})


@contextmanager
def machine_of(gpus: str, holders: Sequence[str], happen: Callable[[Machine], object]) -> Iterator[Machine]:
    """Have a machine of `MACHINES`."""
    with Machine.create(gpus) as machine:
        for notebook, spec in (holder.split(" ") for holder in holders):
            with ENVIRONMENT, as_notebook(notebook):
                _ = machine.add_neighbour(spec, name=KERNEL) if notebook else machine.add_foreign(spec)
        happen(machine)
        yield machine


def alike(text: str, paths: Mapping[str, str]) -> str:
    """Return a text with what differs from run to run replaced, by `RULES`, and paths by names."""
    for path, name in paths.items():
        text = text.replace(path, name)
    for pattern, instead in RULES.values():
        text = re.sub(pattern, instead, text)
    return text


def _shell(machine: Machine, setup: str, folder: Path, line: str, env: Mapping[str, str]) -> str:
    """Run a command of a shell."""
    first, *rest = shlex.split(line)
    code = f"{setup}\n{COMMANDS.get(first)}"
    with ENVIRONMENT:
        environment = machine.environ({**os.environ, **env})
    done = subprocess.run(
        [*((sys.executable, "-c", code) if first in COMMANDS else (first,)), *rest],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=PATIENCE,
    )  # fmt: skip
    return f"{done.stdout}{f'[exit status {done.returncode}]' if done.returncode else ''}"


def _in_session(setup: str, *cells: str) -> list[str]:
    """Run cells in an IPython of a terminal, and return what a person sees of each."""
    from tests.magic.shell import shown

    exec(setup, {})
    return shown(*cells)


def _in_kernel(setup: str, *cells: str) -> list[str]:
    """Run cells in a real kernel, which is a fork of this process, and return what a notebook shows of each."""
    from jupyter_client.blocking.client import BlockingKernelClient

    exec(setup, {})
    file = str(Path("kernel.json").absolute())
    os.environ["JPY_PARENT_PID"] = str(os.getpid())  # as a server has it; the kernel ends with its parent
    kernel = os.fork()
    if not kernel:
        from ipykernel.kernelapp import IPKernelApp

        IPKernelApp.launch_instance(["-f", file, "--colors=nocolor", "--log-level=ERROR"])
    until(lambda: json.loads(Path(file).read_text()), despite=(OSError, ValueError))
    client = BlockingKernelClient(connection_file=file)
    client.load_connection_file()
    client.start_channels()
    client.wait_for_ready(timeout=PATIENCE)
    said = [_cell(client, cell) for cell in ("pass", *cells)][1:]  # the first one shows how to connect to it
    client.stop_channels()
    os.kill(kernel, signal.SIGKILL)
    os.waitpid(kernel, 0)
    return said


def _cell(client: BlockingKernelClient, code: str) -> str:
    """Run a cell, and return what a notebook shows of it; what is no stream stands on lines of its own."""
    shown: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        content = message["content"]
        if text := content.get("text") or content.get("data", {}).get("text/plain") or content.get("evalue"):
            alone = message["msg_type"] != "stream"
            begun = alone and shown and not shown[-1].endswith("\n")
            shown.append("\n" * bool(begun) + text + "\n" * alone)

    client.execute_interactive(code, timeout=PATIENCE, output_hook=hear)
    return "".join(shown)
