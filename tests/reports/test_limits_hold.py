"""A limit holds, or it is said where it is undone: rows of people's reports, in separate cells as they had them.

The driver's figure judges what is held. The pages are called `frameworks`, `kernel`, `jupyter` and `seeds`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.command.shell import run, tfgpu
from tests.frameworks.cells_on_machine import stage
from tests.isolate.notebook import notebook
from tests.machines import machine_of
from tests.processes import QUIET
from tests.sizes import MIB
from tfgpu_magic.simgpu import Machine

Play = Callable[..., list[str]]

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


@pytest.fixture(scope="module")
def play(machine: Machine) -> Iterator[Play]:
    with stage(machine, again=True) as play:
        yield lambda *cells, env=None: play(env or {}, ["%load_ext tfgpu_magic", *cells])[1:]


def having(name: str, value: str) -> str:
    """Return a cell that imports TensorFlow, and sets a variable before."""
    return f"import os\nos.environ[{name!r}] = {value!r}\nimport tensorflow as tf"


@pytest.mark.parametrize(
    ("policy", "held"),
    [("limit 2GiB", [2304, 256]), ("split 1GiB 2GiB", [1280, 256]), ("visible 1; limit 1GiB", [0, 1280])],
)
@pytest.mark.parametrize(
    "question",
    [
        "import tensorflow as tf\nfound = tf.test.gpu_device_name()",
        "import tensorflow as tf\nfound = tf.test.is_gpu_available()",
        "from tensorflow.python.client import device_lib as d; found = d.list_local_devices(); import tensorflow as tf",
    ],
)
def test_frameworks_1_a_question_for_devices_keeps_the_limit(
    play: Play, policy: str, held: list[int], question: str
) -> None:
    said = play(f"%tf_gpu {policy}", question, "bool(found)", OP, "%tf_gpu")

    assert "True" in said[2]
    assert str(held) in said[3]
    assert f"In force: `{policy}`" in said[4]
    assert UNDONE not in "".join(said)


def test_frameworks_1_under_a_ceiling_a_question_for_devices_keeps_it(play: Play) -> None:
    name, limits = "import tensorflow as tf\ntf.test.gpu_device_name()", "[gpu.limit for (gpu,) in logical().values()]"
    logical = "from tfgpu_magic.frameworks.tensorflow.devices import logical"
    said = play(name, OP, f"{logical}; {limits}", env={"TFGPU_CEILING": "limit 2GiB"})

    assert f"[{2048 * MIB}, {2048 * MIB}]" in said[2]


def test_frameworks_1_a_session_with_options_of_its_own_is_told_under_its_cell_once(play: Play) -> None:
    said = play("%tf_gpu limit 2GiB", "import tensorflow as tf", SESSION, OP, "%tf_gpu")

    assert "`limit 2GiB` is in force from TensorFlow's first op on." in said[1]
    assert "`limit 2GiB` is NOT in force: TensorFlow's allocators were made before its first op" in said[2]
    assert UNDONE not in said[3]
    assert "is not in force: the limit of GPU 0 is 6.1 GiB" in said[4]


FOREIGN = """
import ctypes
driver, gpu, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
driver.cuInit(0), driver.cuDeviceGet(ctypes.byref(gpu), 0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), gpu)
"""


def test_frameworks_1_a_context_of_a_library_that_nobody_knows_is_no_session_of_tensorflows(play: Play) -> None:
    said = play("%tf_gpu limit 2GiB", "import tensorflow as tf", FOREIGN, LOOP, OP, "%tf_gpu")

    assert UNDONE not in "".join(said)
    assert "changes nothing" in said[3]
    assert "[2304, " in said[4]
    assert "In force: `limit 2GiB`" in said[5]


def test_frameworks_1_unloaded_both_calls_are_tensorflows_own_again(play: Play) -> None:
    modules = "from tensorflow.python.client import device_lib\nfrom tensorflow.python.eager.context import Context"
    own = f"import tensorflow as tf\n{modules}\nown = Context.set_memory_growth"
    same = "device_lib.list_local_devices.__defaults__ == (None,), Context.set_memory_growth is own"
    said = play(own, "%tf_gpu limit 2GiB", same, "%unload_ext tfgpu_magic", same, LOOP, "%load_ext tfgpu_magic", LOOP)

    assert "(False, False)" in said[2]
    assert "(True, True)" in said[4]
    assert "ValueError: Cannot set memory growth" in said[5]
    assert "changes nothing" in said[7]


@pytest.mark.parametrize(
    ("policy", "cell", "why", "held"),
    [
        ("limit 2GiB", having("TF_GPU_ALLOCATOR", "cuda_malloc_async"), "TF_GPU_ALLOCATOR is 'cuda_mal", [256, 256]),
        ("limit 2GiB", having("TF_FORCE_GPU_ALLOW_GROWTH", "true"), "TF_FORCE_GPU_ALLOW_GROWTH is 'true'", [258, 256]),
        ("growth", having("TF_FORCE_GPU_ALLOW_GROWTH", "false"), "TF_FORCE_GPU_ALLOW_GROWTH is 'false'", [6528, 256]),
        ("growth", f"import tensorflow as tf\n{OWN_LIMIT}", "the limit of GPU 0 is 2 GiB", [258, 256]),
        ("limit 1GiB", f"import tensorflow as tf\n{OWN_LIMIT}", "the limit of GPU 0 is 2 GiB", [2304, 256]),
        (
            "visible 0,1; growth",
            "import tensorflow as tf\ntf.config.set_visible_devices(tf.config.list_physical_devices('GPU')[1:], 'GPU')",
            "TensorFlow sees other GPUs",
            [0, 258],
        ),
        (
            "split 2 --cpu",
            f"import tensorflow as tf\n{THREE_CPUS}",
            "the CPU is divided into 3",
            [6528, 256],
        ),
    ],
)
def test_frameworks_3_what_was_changed_is_told_under_the_cell_in_which_tensorflow_began(
    play: Play, policy: str, cell: str, why: str, held: list[int]
) -> None:
    said = play(f"%tf_gpu {policy}", cell, OP, OP, "%tf_gpu plan")

    assert UNDONE not in "".join(said[:2])
    assert str(held) in said[2]
    assert f"tfgpu_magic: `{policy}` is NOT in force: {why}" in said[2]
    assert "To have it, leave out what has changed that, and start the session again." in said[2]
    assert UNDONE not in said[3]
    assert f"`{policy}` was asked for, and is not in force: {why}" in said[4]


def test_frameworks_3_variables_that_are_set_once_tensorflow_has_begun_change_nothing(play: Play) -> None:
    said = play(
        "%tf_gpu growth", "import tensorflow as tf", OP, having("TF_FORCE_GPU_ALLOW_GROWTH", "false"), "%tf_gpu"
    )

    assert UNDONE not in "".join(said)
    assert "In force: `growth`" in said[4]


def test_frameworks_5_a_variable_that_leaves_the_gpus_as_they_are_undoes_nothing(play: Play) -> None:
    late = f"import tensorflow as tf\n{OP}\nimport os; os.environ['CUDA_VISIBLE_DEVICES'] = ''"
    said = play("%tf_gpu visible 0; limit 2GiB", late, "%tf_gpu")

    assert "[2304, 0]" in said[1]
    assert UNDONE.lower() not in "".join(said).lower()


def test_frameworks_5_another_gpu_than_the_picked_one_is_told(play: Play) -> None:
    said = play("%tf_gpu pick; growth", having("CUDA_VISIBLE_DEVICES", "1"), OP)

    assert "[0, 258]" in said[2]
    assert "`pick; growth` is NOT in force: CUDA_VISIBLE_DEVICES is '1', TensorFlow sees other GPUs." in said[2]


@pytest.mark.parametrize("loop", [LOOP, TRIED, LOOP.replace("tf.config", "tf.compat.v1.config")])
@pytest.mark.parametrize(
    ("policy", "held", "changes"),
    [
        ("limit 2GiB", [2304, 2304], "nothing: the limit is taken at once, unless"),
        ("split 1GiB 1GiB", [2304, 2304], "nothing: the limit is taken at once, unless"),
        ("limit 0=2GiB", [2304, 6528], "nothing: the limit is taken at once, and all that is free of GPU 1, unless"),
        ("growth off", [6528, 6528], "nothing: all that is free is taken."),
        ("limit 2GiB --grow", [258, 258], ""),
        ("limit 0=2GiB --grow", [258, 258], ""),
        ("growth", [258, 258], ""),
    ],
)
def test_frameworks_11_the_loop_is_accepted(play: Play, policy: str, held: list[int], changes: str, loop: str) -> None:
    *_, said, again, done, after = play(f"%tf_gpu {policy}", "import tensorflow as tf", loop, loop, TOUCH, loop)
    told = f"tfgpu_magic: `{policy}` is in force, so set_memory_growth changes {changes}" if changes else ""

    assert told in said
    assert said.count("tfgpu_magic") == bool(changes)
    assert "tfgpu_magic" not in again + done + after
    assert str(held) in done
    assert "Error" not in said + again + done + after


@pytest.mark.parametrize(
    ("cell", "said"), [(f"{FIRST}{GROW}(gpu, True)", ""), (LOOP.replace("True", "False"), "changes nothing")]
)
def test_frameworks_11_growth_that_differs_or_is_off_is_accepted_under_growth(play: Play, cell: str, said: str) -> None:
    seen = play("%tf_gpu growth", "import tensorflow as tf", cell, TOUCH)

    assert said in seen[2]
    assert "[258, 258]" in seen[3]


def test_frameworks_11_who_has_set_the_policy_is_said(play: Play) -> None:
    said = play("import tensorflow as tf", LOOP, TOUCH, env={"TFGPU_POLICY": "limit 25%"})

    assert "`limit 25%`, from $TFGPU_POLICY, is in force, so set_memory_growth changes nothing" in said[1]
    assert "[2304, 2304]" in said[2]


@pytest.mark.parametrize("words", ["%tf_gpu pick 2", "%tf_gpu limit 1GiB", "1"])
def test_frameworks_11_beside_a_users_own_logical_devices_it_is_an_error_as_before(play: Play, words: str) -> None:
    said = play(words, f"import tensorflow as tf\n{OWN_LIMIT}", LOOP)

    assert "ValueError: Cannot set memory growth on device when virtual devices configured" in said[2]
    assert "tfgpu_magic" not in said[2]


@pytest.mark.parametrize(
    ("begin", "cell", "why"),
    [
        ("import tensorflow as tf; gpus = tf.config.list_physical_devices('GPU')", "gpus[1]", "GPU 1 is hidden, and"),
        ("import tensorflow as tf", "tf.config.list_physical_devices('GPU')[1]", "GPU 1 is hidden, and"),
        ("import tensorflow as tf", "tf.config.list_physical_devices('GPU')[7]", ""),
        ("import tensorflow as tf", "[1, 2][5 - 4 + 1]", ""),
        ("rows = [0]", "rows[1]", ""),
        (
            "import tensorflow as tf; tf.config.set_soft_device_placement(False)",
            "with tf.device('GPU:1'):\n    tf.zeros(3)",
            "GPU 1 is hidden, and",
        ),
        (
            "import tensorflow as tf; tf.zeros(3)",
            "tf.config.set_visible_devices([], 'GPU')",
            "in force already. Leave this call out",
        ),
    ],
)
def test_frameworks_19_below_an_error_that_a_policy_causes_a_line_names_it(
    play: Play, begin: str, cell: str, why: str
) -> None:
    said = play("%tf_gpu pick; limit 2GiB", begin, cell)

    assert "Error" in said[2]
    assert why in said[2]
    assert ("tfgpu_magic: `pick; limit 2GiB` is in force" in said[2]) == bool(why)


def test_frameworks_2b_a_fraction_of_pytorchs_that_is_set_later_is_told_under_its_cell(play: Play) -> None:
    said = play("%gpu limit 2GiB", "import torch; take(1)", "own_fraction(0.9)", "take(3)", "mib()")

    assert "`limit 2GiB` is NOT in force: PyTorch may take 7.1 GiB of GPU 0." in said[2]
    assert UNDONE not in said[1] + said[3]
    assert "[4352, " in said[4]


@pytest.mark.parametrize("policy", ["limit 2GiB", "limit 40%", "limit 2GiB --grow", "growth", "pick"])
@pytest.mark.parametrize("magic", ["tf_gpu", "gpu"])
def test_nothing_is_told_where_nothing_was_changed(play: Play, magic: str, policy: str) -> None:
    said = play(f"%{magic} {policy}", "import tensorflow as tf", OP, TOUCH, "import torch; take(1)", "%tf_gpu")

    assert UNDONE.lower() not in "".join(said).lower()
    assert "Error" not in "".join(said)


@pytest.mark.parametrize("context", [105, 1200, 2000])
def test_nothing_is_told_however_much_cuda_and_its_libraries_take(context: int) -> None:
    with Machine.create("1x8GiB", context=context * MIB) as machine, stage(machine, again=True) as play:
        said = play({}, ["%load_ext tfgpu_magic", "%tf_gpu limit 5GiB", "import tensorflow as tf", OP, OP])

    assert str([5120 + context]) in said[3]
    assert UNDONE not in "".join(said)


@pytest.mark.parametrize(
    ("words", "neighbour", "context", "held"),
    [("limit 4GiB", "5.5GiB@0", 256, 2215), ("limit 45%", "4136MiB@0", 450, 3767)],
)
def test_kernel_h2_a_limit_that_tensorflow_has_shrunk_is_told_with_who_holds_the_rest(
    words: str, neighbour: str, context: int, held: int
) -> None:
    with Machine.create("1x8GiB", context=context * MIB) as machine, stage(machine, again=True) as play:
        other = "from tfgpu_magic.simgpu import Machine; other = Machine.current()"
        add = f"{other}.add_neighbour({neighbour!r}, name='bert.py')"
        cells = [f"%tf_gpu {words}", "import tensorflow as tf", add, OP, OP, "%tf_gpu", "%tf_gpu plan", "%gpu plan"]
        said = play({}, ["%load_ext tfgpu_magic", *cells])

    assert str([held]) in said[4]
    assert f"`{words}` is NOT in force: TensorFlow took less than" in said[4]
    assert "bert.py" in said[4]
    assert UNDONE not in said[5]
    assert all("and is not in force: TensorFlow took less than" in one for one in said[6:])
    assert "GiB, not in force" in said[6]


def test_kernel_h2_a_context_that_is_larger_than_estimated_is_told_as_the_drivers_figure() -> None:
    with Machine.create("1x16GiB", context=2500 * MIB) as machine, stage(machine, again=True) as play:
        said = play({}, ["%load_ext tfgpu_magic", "%tf_gpu limit 2GiB", "import tensorflow as tf", OP, OP])

    assert "NOT in force: the driver counts 4.4 GiB of GPU 0 for this session, its CUDA context included" in said[3]
    assert "more than a limit of 2 GiB and CUDA's libraries. To have it, choose another GPU or a lower limit" in said[3]
    assert UNDONE not in said[4]


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


def test_after_a_cell_only_gpus_are_asked_for_on_which_a_limit_is_still_to_be_taken(play: Play) -> None:
    begin = ["%tf_gpu limit 2GiB", "import tensorflow as tf", OP, ASKED]
    one, both = play(*begin, "1", "asked"), play(*begin, TOUCH, "asked.clear()", "1", "asked")

    assert "{'GPU:1'}" in one[-1]
    assert "set()" in both[-1]


def test_kernel_h2_where_the_driver_names_no_process_nothing_is_guessed() -> None:
    with Machine.create("1x8GiB") as machine, stage(machine, again=True) as play:
        machine.host_pids()
        add = "from tfgpu_magic.simgpu import Machine; Machine.current().add_neighbour('5.5GiB@0')"
        cells = ["%tf_gpu limit 4GiB", "import tensorflow as tf", add, OP]
        said = play({}, ["%load_ext tfgpu_magic", *cells])

    assert UNDONE not in "".join(said)


SECOND = """
import threading
ready, done = threading.Event(), threading.Event()
second = threading.Thread(target=get_ipython().run_cell, args=("ready.set(); done.wait()",))
second.start()
ready.wait()
"""


def test_jupyter_11_of_cells_that_run_side_by_side_none_is_named(play: Play) -> None:
    said = play("import tensorflow as tf", SECOND, "tf.ones(3)", "%tf_gpu", "done.set(); second.join()")
    alone = play("import tensorflow as tf", SECOND, "done.set(); second.join()", "tf.ones(3)", "%tf_gpu")

    assert "is using the GPUs since a cell." in said[3]
    assert "(tf.ones(3))" in alone[4]


PROGRAM = """
import tensorflow as tf
for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.{call}
tf.ones((64, 64))
from tests.tf.on_machine import held
print([size // 2**20 for size in held()])
"""


@pytest.mark.parametrize(
    ("call", "held", "told"),
    [
        (
            "experimental.set_memory_growth(gpu, True)",
            "[1280, 256]",
            "tfgpu: `limit 1GiB` is in force, so set_memory_growth changes nothing",
        ),
        (
            f"set_logical_device_configuration(gpu, {TWO_GIB})",
            "[2304, 256]",
            "tfgpu: `limit 1GiB` is NOT in force: the limit of GPU 0 is 2 GiB",
        ),
    ],
)
def test_frameworks_11_and_seeds_f4_an_unchanged_program_goes_on_and_is_told_beside_its_errors(
    machine: Machine, tmp_path: Path, call: str, held: str, told: str
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.format(call=call))
    done = tfgpu(machine, "run", "limit 1GiB", "--", str(tmp_path / "train.py"), cwd=Path.cwd())

    assert (done.returncode, done.stdout.strip()) == (0, held)
    assert told in done.stderr
    assert done.stderr.count("tfgpu: ") == 1


def test_frameworks_3_a_program_that_applies_a_policy_itself_is_told_too(machine: Machine) -> None:
    code = f"import tfgpu_magic; tfgpu_magic.apply('limit 1GiB')\n{having('TF_GPU_ALLOCATOR', 'cuda_malloc_async')}"
    done = run(machine, sys.executable, "-c", f"{code}\ntf.ones(3)")

    assert done.returncode == 0
    assert "tfgpu_magic: `limit 1GiB` is NOT in force: TF_GPU_ALLOCATOR is 'cuda_malloc_async'." in done.stderr


def test_frameworks_3_and_11_an_isolated_cell_has_the_lines_under_it(machine: Machine, tmp_path: Path) -> None:
    with notebook(machine, tmp_path) as here:
        grown = here.isolated(f"import tensorflow as tf\n{LOOP}\ntf.ones(3)", "limit 1GiB")
        undone = here.isolated(f"{having('TF_FORCE_GPU_ALLOW_GROWTH', 'true')}\ntf.ones(3)", "limit 1GiB")
        called = here.run(
            "import tfgpu_magic\n@tfgpu_magic.isolated(policy='limit 1GiB')\ndef train():\n"
            f"    import tensorflow as tf\n    {OWN_LIMIT}\n    tf.ones(3)\ntrain()".replace(
                "\ntf.config", "\n    tf.config"
            )
        )

    assert (grown.status, undone.status, called.status) == ("ok", "ok", "ok")
    assert "is in force, so set_memory_growth changes nothing" in grown.text
    assert "NOT in force: TF_FORCE_GPU_ALLOW_GROWTH is 'true'. To have it" in undone.text
    assert "NOT in force: the limit of GPU 0 is 2 GiB" in called.text


def test_kernel_h2_an_isolated_cell_says_once_that_its_limit_was_shrunk(tmp_path: Path) -> None:
    begin = "import tensorflow as tf\nfrom tfgpu_magic.simgpu import Machine"
    with Machine.create("1x8GiB") as machine, notebook(machine, tmp_path) as here:
        had = here.isolated(f"{begin}\ntf.ones(3)", "limit 4GiB")
        add = "other = Machine.current().add_neighbour('5.5GiB@0', name='bert.py')"
        shrunk = here.isolated(f"{begin}\n{add}\ntf.ones(3)", "limit 4GiB")

    assert (had.status, shrunk.status) == ("ok", "ok")
    assert UNDONE not in had.text
    assert shrunk.text.count("`limit 4GiB` is NOT in force: TensorFlow took less than 4 GiB, as less was free") == 1
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
    executed(machine, tmp_path, *begin, "import tensorflow as tf\ntf.test.gpu_device_name()", LOOP, "tf.ones(3)")
    kept = saved(tmp_path)
    executed(machine, tmp_path, *begin, "import tensorflow as tf", later)
    undone = saved(tmp_path)
    named = policy.format(file=there)

    assert f"{named} is in force, so set_memory_growth changes nothing" in kept
    assert UNDONE not in kept
    assert f"{named} is NOT in force: the limit of GPU 0 is 3 GiB." in undone


def executed(machine: Machine, folder: Path, *sources: str) -> None:
    """Have nbconvert run a notebook of these cells."""
    new: Any = nbformat.v4
    nbformat.write(new.new_notebook(cells=list(map(new.new_code_cell, sources))), folder / "one.ipynb")  # type: ignore[no-untyped-call]  # nbformat's
    command = [sys.executable, "-m", "nbconvert", "--execute", "--inplace", "--to", "notebook", "one.ipynb"]
    own = {**QUIET, "HOME": str(folder), "PYTHONPATH": str(folder)}
    done = run(machine, *command, cwd=folder, env=own)
    assert done.returncode == 0, done.stderr


def saved(folder: Path) -> str:
    """Return the text of all outputs of the saved notebook."""
    cells = json.loads((folder / "one.ipynb").read_text())["cells"]
    return "".join(line for cell in cells for output in cell["outputs"] for line in output.get("text", ()))
