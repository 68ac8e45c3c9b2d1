"""A limit holds, or it is said where it is undone: rows of people's reports, in separate cells as they had them.

The driver's figure judges what is held. The pages are called `frameworks`, `kernel`, `jupyter` and `seeds`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.command.shell import run
from tests.frameworks.cells_on_machine import stage
from tests.isolate.notebook import notebook
from tests.machines import machine_of
from tests.magic.cells import IMPORT, NOT, Cells, Play, playing
from tests.processes import QUIET
from tests.sizes import MIB
from tfgpu_magic.simgpu import Machine

machine = machine_of("2x8GiB")

UNDONE = "NOT in force"
OP = "a = tf.ones((64, 64)); print(mib())"
TOUCH = "from tests.tf.on_machine import touch_every_gpu; touch_every_gpu(); print(mib())"
GROW = "tf.config.experimental.set_memory_growth"
LOOP = f"for gpu in tf.config.list_physical_devices('GPU'):\n    {GROW}(gpu, True)"
TRIED = (
    f"try:\n    [{GROW}(gpu, True) for gpu in tf.config.list_physical_devices('GPU')]\nexcept RuntimeError as e:\n    e"
)
FIRST = "gpu = tf.config.list_physical_devices('GPU')[0]\n"
TWO_GIB = "[tf.config.LogicalDeviceConfiguration(memory_limit=2048)]"
OWN_LIMIT = f"{FIRST}tf.config.set_logical_device_configuration(gpu, {TWO_GIB})"
THREE_CPUS = """
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
"""
SESSION = (
    "config = tf.compat.v1.ConfigProto(); config.gpu_options.allow_growth = True\n"
    "session = tf.compat.v1.Session(config=config)"
)
LIMITS = (
    "from tfgpu_magic.frameworks.tensorflow.devices import logical; [gpu.limit for (gpu,) in logical().values()]",
    f"[{2048 * MIB}, {2048 * MIB}]",
)
FOREIGN = """
import ctypes
driver, gpu, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
driver.cuInit(0), driver.cuDeviceGet(ctypes.byref(gpu), 0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), gpu)
"""
OWN = f"""{IMPORT}
from tensorflow.python.client import device_lib
from tensorflow.python.eager.context import Context
own = Context.set_memory_growth"""
SAME = "device_lib.list_local_devices.__defaults__ == (None,), Context.set_memory_growth is own"
ASKED = """
import threading
from tensorflow.python.eager.context import Context
asked, own = set(), Context.get_memory_info
def get_memory_info(self, name):
    if threading.current_thread() is threading.main_thread():
        asked.add(name)
    return own(self, name)
Context.get_memory_info = get_memory_info
"""
SECOND = """
import threading
ready, done = threading.Event(), threading.Event()
second = threading.Thread(target=get_ipython().run_cell, args=("ready.set(); done.wait()",))
second.start()
ready.wait()
"""


@pytest.fixture(scope="module")
def play(machine: Machine) -> Iterator[Play]:
    with stage(machine, again=True) as play:
        yield play


def having(name: str, value: str) -> str:
    """Return a cell that imports TensorFlow, and sets a variable before."""
    return f"import os\nos.environ[{name!r}] = {value!r}\n{IMPORT}"


SCENES = {
    "frameworks 1: under a ceiling a question for devices keeps it": Cells(
        f"{IMPORT}\ntf.test.gpu_device_name()", OP, LIMITS, env={"TFGPU_CEILING": "limit 2GiB"}
    ),
    "frameworks 1: a session with options of its own is told under its cell, once": Cells(
        "%tf_gpu limit 2GiB",
        (IMPORT, "`limit 2GiB` is in force from TensorFlow's first op on."),
        (SESSION, f"`limit 2GiB` is {UNDONE}: TensorFlow's allocators were made before its first op"),
        (OP, NOT + UNDONE),
        ("%tf_gpu", "is not in force: the limit of GPU 0 is 6.1 GiB"),
    ),
    "frameworks 1: a context of a library that nobody knows is no session of TensorFlow's": Cells(
        *("%tf_gpu limit 2GiB", IMPORT, FOREIGN),
        (LOOP, "changes nothing"),
        (OP, "[2304, "),
        ("%tf_gpu", "In force: `limit 2GiB`"),
        never=UNDONE,
    ),
    "frameworks 1: unloaded, both calls are TensorFlow's own again": Cells(
        *(OWN, "%tf_gpu limit 2GiB", (SAME, "(False, False)"), "%unload_ext tfgpu_magic", (SAME, "(True, True)")),
        (LOOP, "ValueError: Cannot set memory growth"),
        "%load_ext tfgpu_magic",
        (LOOP, "changes nothing"),
    ),
    "frameworks 3: variables that are set once TensorFlow has begun change nothing": Cells(
        *("%tf_gpu growth", IMPORT, OP, having("TF_FORCE_GPU_ALLOW_GROWTH", "false")),
        ("%tf_gpu", "In force: `growth`"),
        never=UNDONE,
    ),
    "frameworks 5: a variable that leaves the GPUs as they are undoes nothing": Cells(
        "%tf_gpu visible 0; limit 2GiB",
        (f"{IMPORT}\n{OP}\nimport os; os.environ['CUDA_VISIBLE_DEVICES'] = ''", "[2304, 0]"),
        "%tf_gpu",
        never=UNDONE,
    ),
    "frameworks 5: another GPU than the picked one is told": Cells(
        "%tf_gpu pick; growth",
        having("CUDA_VISIBLE_DEVICES", "1"),
        (OP, "[0, 258]", f"`pick; growth` is {UNDONE}: CUDA_VISIBLE_DEVICES is '1', TensorFlow sees other GPUs."),
    ),
    "frameworks 11: who has set the policy is said": Cells(
        IMPORT,
        (LOOP, "`limit 25%`, from $TFGPU_POLICY, is in force, so set_memory_growth changes nothing"),
        (TOUCH, "[2304, 2304]"),
        env={"TFGPU_POLICY": "limit 25%"},
    ),
    "frameworks 11: under growth, growth of one GPU is accepted": Cells(
        "%tf_gpu growth", IMPORT, f"{FIRST}{GROW}(gpu, True)", (TOUCH, "[258, 258]")
    ),
    "frameworks 11: under growth, its end changes nothing": Cells(
        "%tf_gpu growth", IMPORT, (LOOP.replace("True", "False"), "changes nothing"), (TOUCH, "[258, 258]")
    ),
    "frameworks 2b: a fraction of PyTorch's that is set later is told under its cell": Cells(
        "%gpu limit 2GiB",
        ("import torch; take(1)", NOT + UNDONE),
        ("own_fraction(0.9)", f"`limit 2GiB` is {UNDONE}: PyTorch may take 7.1 GiB of GPU 0."),
        ("take(3)", NOT + UNDONE),
        ("mib()", "[4352, "),
    ),
    "after a cell only GPUs are asked for on which a limit is still to be taken": Cells(
        *("%tf_gpu limit 2GiB", IMPORT, OP, ASKED, "1", ("asked", "{'GPU:1'}")),
        *(TOUCH, "asked.clear()", "1", ("asked", "set()")),
    ),
    "jupyter 11: of cells that run side by side none is named": Cells(
        *(IMPORT, SECOND, "tf.ones(3)", ("%tf_gpu", "is using the GPUs since a cell."), "done.set(); second.join()")
    ),
    "jupyter 11: once they are over, the one that began is": Cells(
        IMPORT, SECOND, "done.set(); second.join()", "tf.ones(3)", ("%tf_gpu", "(tf.ones(3))")
    ),
    **{
        f"nothing is told where nothing was changed: %{line}": Cells(
            f"%{line}",
            IMPORT,
            OP,
            (TOUCH, NOT + "Error"),
            ("import torch; take(1)", NOT + "Error"),
            "%tf_gpu",
            never=UNDONE,
        )
        for line in ("tf_gpu limit 40%", "tf_gpu pick", "gpu limit 2GiB", "gpu limit 2GiB --grow", "gpu growth")
    },
}


@pytest.mark.parametrize("cells", SCENES.values(), ids=SCENES)
def test_each_cell_is_told_what_undoes_a_limit_and_no_other(play: Play, cells: Cells) -> None:
    cells.play(play)


QUESTIONS = (
    f"{IMPORT}\nfound = tf.test.gpu_device_name()",
    f"{IMPORT}\nfound = tf.test.is_gpu_available()",
    f"from tensorflow.python.client import device_lib as d; found = d.list_local_devices(); {IMPORT}",
)


@pytest.mark.parametrize(
    ("policy", "held", "question"),
    [
        *(("limit 2GiB", "[2304, 256]", question) for question in QUESTIONS),
        ("split 1GiB 2GiB", "[1280, 256]", QUESTIONS[0]),
        ("visible 1; limit 1GiB", "[0, 1280]", QUESTIONS[2]),
    ],
)
def test_frameworks_1_a_question_for_devices_keeps_the_limit(play: Play, policy: str, held: str, question: str) -> None:
    asked = f"%tf_gpu {policy}", question, ("bool(found)", "True")
    Cells(*asked, (OP, held), ("%tf_gpu", f"In force: `{policy}`"), never=UNDONE).play(play)


@pytest.mark.parametrize(
    ("policy", "cell", "why", "held"),
    [
        ("limit 2GiB", having("TF_GPU_ALLOCATOR", "cuda_malloc_async"), "TF_GPU_ALLOCATOR is 'cuda_mal", "[256, 256]"),
        ("limit 2GiB", having("TF_FORCE_GPU_ALLOW_GROWTH", "true"), "TF_FORCE_GPU_ALLOW_GROWTH is 't", "[258, 256]"),
        ("growth", having("TF_FORCE_GPU_ALLOW_GROWTH", "false"), "TF_FORCE_GPU_ALLOW_GROWTH is 'f", "[6528, 256]"),
        ("growth", f"{IMPORT}\n{OWN_LIMIT}", "the limit of GPU 0 is 2 GiB", "[258, 256]"),
        ("limit 1GiB", f"{IMPORT}\n{OWN_LIMIT}", "the limit of GPU 0 is 2 GiB", "[2304, 256]"),
        (
            "visible 0,1; growth",
            f"{IMPORT}\ntf.config.set_visible_devices(tf.config.list_physical_devices('GPU')[1:], 'GPU')",
            "TensorFlow sees other GPUs",
            "[0, 258]",
        ),
        ("split 2 --cpu", f"{IMPORT}\n{THREE_CPUS}", "the CPU is divided into 3", "[6528, 256]"),
    ],
)
def test_frameworks_3_what_was_changed_is_told_under_the_cell_in_which_tensorflow_began(
    play: Play, policy: str, cell: str, why: str, held: str
) -> None:
    Cells(
        (f"%tf_gpu {policy}", NOT + UNDONE),
        (cell, NOT + UNDONE),
        (OP, held, f"tfgpu_magic: `{policy}` is {UNDONE}: {why}", "To have it, leave out what has changed that"),
        (OP, NOT + UNDONE),
        ("%tf_gpu plan", f"`{policy}` was asked for, and is not in force: {why}"),
    ).play(play)


@pytest.mark.parametrize(
    ("policy", "held", "changes", "loop"),
    [
        ("limit 2GiB", "[2304, 2304]", "nothing: the limit is taken at once, unless", TRIED),
        ("limit 2GiB", "[2304, 2304]", "nothing: the limit", LOOP.replace("tf.config", "tf.compat.v1.config")),
        ("split 1GiB 1GiB", "[2304, 2304]", "nothing: the limit is taken at once, unless", LOOP),
        ("limit 0=2GiB", "[2304, 6528]", "nothing: the limit is taken at once, and all that is free of GPU 1", LOOP),
        ("growth off", "[6528, 6528]", "nothing: all that is free is taken.", LOOP),
        ("limit 2GiB --grow", "[258, 258]", "", TRIED),
        ("limit 0=2GiB --grow", "[258, 258]", "", LOOP),
        ("growth", "[258, 258]", "", LOOP),
    ],
)
def test_frameworks_11_the_loop_is_accepted(play: Play, policy: str, held: str, changes: str, loop: str) -> None:
    told = f"tfgpu_magic: `{policy}` is in force, so set_memory_growth changes {changes}" if changes else ""
    silent = NOT + "tfgpu_magic", NOT + "Error"
    cells = Cells(f"%tf_gpu {policy}", IMPORT, (loop, told), (loop, *silent), (TOUCH, held, *silent), (loop, *silent))

    assert cells.play(play)[2].count("tfgpu_magic") == bool(changes)


@pytest.mark.parametrize("words", ["%tf_gpu pick 2", "%tf_gpu limit 1GiB", "1"])
def test_frameworks_11_beside_a_users_own_logical_devices_it_is_an_error_as_before(play: Play, words: str) -> None:
    error = "ValueError: Cannot set memory growth on device when virtual devices configured"
    Cells(words, f"{IMPORT}\n{OWN_LIMIT}", (LOOP, error, NOT + "tfgpu_magic")).play(play)


@pytest.mark.parametrize(
    ("begin", "cell", "why"),
    [
        (f"{IMPORT}; gpus = tf.config.list_physical_devices('GPU')", "gpus[1]", "GPU 1 is hidden, and"),
        (IMPORT, "tf.config.list_physical_devices('GPU')[1]", "GPU 1 is hidden, and"),
        (IMPORT, "tf.config.list_physical_devices('GPU')[7]", ""),
        (IMPORT, "[1, 2][5 - 4 + 1]", ""),
        ("rows = [0]", "rows[1]", ""),
        (
            f"{IMPORT}; tf.config.set_soft_device_placement(False)",
            "with tf.device('GPU:1'):\n    tf.zeros(3)",
            "GPU 1 is hidden, and",
        ),
        (f"{IMPORT}; tf.zeros(3)", "tf.config.set_visible_devices([], 'GPU')", "in force already. Leave this call out"),
    ],
)
def test_frameworks_19_below_an_error_that_a_policy_causes_a_line_names_it(
    play: Play, begin: str, cell: str, why: str
) -> None:
    line = f"{'' if why else NOT}tfgpu_magic: `pick; limit 2GiB` is in force"
    Cells("%tf_gpu pick; limit 2GiB", begin, (cell, "Error", why, line)).play(play)


@pytest.mark.parametrize("context", [105, 1200, 2000])
def test_nothing_is_told_however_much_cuda_and_its_libraries_take(context: int) -> None:
    with playing("1x8GiB", context=context * MIB) as (play, _):
        Cells("%tf_gpu limit 5GiB", IMPORT, (OP, f"[{5120 + context}]"), OP, never=UNDONE).play(play)


ADD = "from tfgpu_magic.simgpu import Machine; other = Machine.current().add_neighbour({!r}, name='bert.py')"


@pytest.mark.parametrize(
    ("words", "neighbour", "context", "held"),
    [("limit 4GiB", "5.5GiB@0", 256, 2215), ("limit 45%", "4136MiB@0", 450, 3767)],
)
def test_kernel_h2_a_limit_that_tensorflow_has_shrunk_is_told_with_who_holds_the_rest(
    words: str, neighbour: str, context: int, held: int
) -> None:
    shrunk = "and is not in force: TensorFlow took less than"
    with playing("1x8GiB", context=context * MIB) as (play, _):
        Cells(
            *(f"%tf_gpu {words}", IMPORT, ADD.format(neighbour)),
            (OP, f"[{held}]", f"`{words}` is {UNDONE}: TensorFlow took less than", "bert.py"),
            (OP, NOT + UNDONE),
            ("%tf_gpu", shrunk, "GiB, not in force"),
            ("%tf_gpu plan", shrunk),
            ("%gpu plan", shrunk),
        ).play(play)


def test_kernel_h2_a_context_that_is_larger_than_estimated_is_told_as_the_drivers_figure() -> None:
    figure = "the driver counts 4.4 GiB of GPU 0 for this session, its CUDA context included"
    with playing("1x16GiB", context=2500 * MIB) as (play, _):
        told = OP, f"{UNDONE}: {figure}", "choose another GPU or a lower limit"
        Cells("%tf_gpu limit 2GiB", IMPORT, told, (OP, NOT + UNDONE)).play(play)


def test_kernel_h2_where_the_driver_names_no_process_nothing_is_guessed() -> None:
    with playing("1x8GiB") as (play, machine):
        machine.host_pids()
        Cells("%tf_gpu limit 4GiB", IMPORT, ADD.format("5.5GiB@0"), OP, never=UNDONE).play(play)


def test_frameworks_3_a_program_that_applies_a_policy_itself_is_told_too(machine: Machine) -> None:
    code = f"import tfgpu_magic; tfgpu_magic.apply('limit 1GiB')\n{having('TF_GPU_ALLOCATOR', 'cuda_malloc_async')}"
    done = run(machine, sys.executable, "-c", f"{code}\ntf.ones(3)")

    assert done.returncode == 0
    assert f"tfgpu_magic: `limit 1GiB` is {UNDONE}: TF_GPU_ALLOCATOR is 'cuda_malloc_async'." in done.stderr


def test_frameworks_3_and_11_an_isolated_cell_has_the_lines_under_it(machine: Machine, tmp_path: Path) -> None:
    body = f"{IMPORT}\n{OWN_LIMIT}\ntf.ones(3)".replace("\n", "\n    ")
    with notebook(machine, tmp_path) as here:
        grown = here.isolated(f"{IMPORT}\n{LOOP}\ntf.ones(3)", "limit 1GiB")
        undone = here.isolated(f"{having('TF_FORCE_GPU_ALLOW_GROWTH', 'true')}\ntf.ones(3)", "limit 1GiB")
        called = here.run(
            f"import tfgpu_magic\n@tfgpu_magic.isolated(policy='limit 1GiB')\ndef train():\n    {body}\ntrain()"
        )

    assert (grown.status, undone.status, called.status) == ("ok", "ok", "ok")
    assert "is in force, so set_memory_growth changes nothing" in grown.text
    assert f"{UNDONE}: TF_FORCE_GPU_ALLOW_GROWTH is 'true'. To have it" in undone.text
    assert f"{UNDONE}: the limit of GPU 0 is 2 GiB" in called.text


def test_kernel_h2_an_isolated_cell_says_once_that_its_limit_was_shrunk(tmp_path: Path) -> None:
    with Machine.create("1x8GiB") as machine, notebook(machine, tmp_path) as here:
        had = here.isolated(f"{IMPORT}\ntf.ones(3)", "limit 4GiB")
        shrunk = here.isolated(f"{IMPORT}\n{ADD.format('5.5GiB@0')}\ntf.ones(3)", "limit 4GiB")

    assert (had.status, shrunk.status) == ("ok", "ok")
    assert UNDONE not in had.text
    assert f"`limit 4GiB` is {UNDONE}: TensorFlow took less than 4 GiB, as less was free" in shrunk.text
    assert "bert.py" in shrunk.text
    assert shrunk.text.count(UNDONE) == 1


FILE = 'policy = "limit 25%"\nceiling = "limit 25%"\n'


@pytest.mark.parametrize(
    ("file", "words", "policy"),
    [("", "%tf_gpu limit 25%", "`limit 25%`"), (FILE, "1", "`limit 25%`, from {file},")],
)
def test_frameworks_1_3_and_11_a_notebook_that_nbconvert_has_run_has_the_lines(
    machine: Machine, tmp_path: Path, file: str, words: str, policy: str
) -> None:
    there = tmp_path / "tfgpu_magic.toml"
    there.write_text(file)
    code = f"import pathlib\nfrom tfgpu_magic import policy\npolicy.FILE = pathlib.Path({str(there)!r})\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    begin, later = ["%load_ext tfgpu_magic", words], f"{OWN_LIMIT.replace('2048', '3072')}; tf.ones(3)"
    kept = executed(machine, tmp_path, *begin, f"{IMPORT}\ntf.test.gpu_device_name()", LOOP, "tf.ones(3)")
    undone = executed(machine, tmp_path, *begin, IMPORT, later)
    named = policy.format(file=there)

    assert f"{named} is in force, so set_memory_growth changes nothing" in kept
    assert UNDONE not in kept
    most = f" The most that is allowed here is the ceiling `limit 25%`, from the administrator's file {there}."
    assert f"{named} is {UNDONE}: the limit of GPU 0 is 3 GiB.{most * bool(file)} To have it" in undone


def executed(machine: Machine, folder: Path, *sources: str) -> str:
    """Have nbconvert run a notebook of these cells; return the text of all outputs that it has saved."""
    new: Any = nbformat.v4
    nbformat.write(new.new_notebook(cells=list(map(new.new_code_cell, sources))), folder / "one.ipynb")  # type: ignore[no-untyped-call]  # nbformat's
    command = [sys.executable, "-m", "nbconvert", "--execute", "--inplace", "--to", "notebook", "one.ipynb"]
    own = {**QUIET, "HOME": str(folder), "PYTHONPATH": str(folder)}
    done = run(machine, *command, cwd=folder, env=own)
    assert done.returncode == 0, done.stderr
    cells = json.loads((folder / "one.ipynb").read_text())["cells"]
    return "".join(line for cell in cells for output in cell["outputs"] for line in output.get("text", ()))
