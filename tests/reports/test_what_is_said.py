"""What an answer, a table and a page say of growth, limits and hidden GPUs is what the frameworks do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.frameworks.cells_on_machine import stage
from tests.machines import machine_of
from tfgpu_magic.simgpu import Machine

Play = Callable[..., list[str]]

LOAD = "%load_ext tfgpu_magic"
IMPORT = "import tensorflow as tf"
LOOP = """import tensorflow as tf
for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)"""
LIMITED = """import tensorflow as tf
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_logical_device_configuration(gpus[0], [tf.config.LogicalDeviceConfiguration(memory_limit=2048)])"""
USE = """for gpu in tf.config.list_logical_devices("GPU"):
    with tf.device(gpu.name):
        x = tf.zeros([1000])
mib()"""
SESSION = """config = tf.compat.v1.ConfigProto()
config.gpu_options.{option}
session = tf.compat.v1.Session(config=config)"""
LARGE = "x = tf.zeros([3 * 2**28])\nmib()"
STATUS = "%tf_gpu"
CEILING = {"TFGPU_CEILING": "limit 2GiB"}

machine = machine_of("2x8GiB")


@pytest.fixture(scope="module")
def play(machine: Machine) -> Iterator[Play]:
    with _playing(machine) as played:
        yield played


@pytest.fixture(scope="module")
def without_cudnn() -> Iterator[Play]:
    """Give cells where CUDA works, and TensorFlow lacks one of its libraries."""
    with Machine.create("2x8GiB", shared=True) as lacking:
        for library in lacking.path.parent.rglob("libcudnn*"):
            library.unlink()
        with _playing(lacking) as played:
            yield played


@contextlib.contextmanager
def _playing(machine: Machine) -> Iterator[Play]:
    with stage(machine, again=True) as play:

        def played(*cells: str, env: Mapping[str, str] | None = None) -> list[str]:
            return play(env or {}, ["", LOAD, *cells])[2:]

        yield played


def policies(table: str) -> list[str]:
    """Return the column Policy of a table of two GPUs."""
    header, *rows = table[table.index(" GPU  Name") :].splitlines()
    return [row[header.index("Policy") :].strip() for row in rows[:2]]


# Growth


@pytest.mark.parametrize(
    ("words", "takes", "held"),
    [
        ("limit 0=2GiB", ["limit 2 GiB", "all that is free"], [2304, 6528]),
        ("split 2GiB 2GiB --gpu 0", ["split 2 × 2 GiB", "all that is free"], [4352, 6528]),
        ("limit 2GiB", ["limit 2 GiB", "limit 2 GiB"], [2304, 2304]),
    ],
)
def test_growth_by_the_loop_ends_on_every_gpu_with_a_limit_on_one(
    play: Play, words: str, takes: list[str], held: list[int]
) -> None:
    _, answer, before, taken, after = play(LOOP, f"%tf_gpu {words}", STATUS, USE, STATUS)
    told = [line[line.index("GPU:") :] for line in answer.splitlines() if line.startswith("   GPU ")]
    own = ["limit" if "limit" in one else one for one in policies(before)]

    assert taken.strip().endswith(str(held))
    assert all(one in line and "grow" not in line for one, line in zip(takes, told, strict=True)), answer
    assert "grow" not in "".join(own + policies(after)), before + after


def test_a_limit_over_the_loop_warns_of_the_room_for_cudas_libraries(play: Play) -> None:
    _, over_the_loop = play(LOOP, "%tf_gpu limit 7.4GiB")
    _, alone = play(IMPORT, "%tf_gpu limit 7.4GiB")

    assert "Warning: of GPU 0, 1 this leaves" in alone
    assert "Warning: of GPU 0, 1 this leaves" in over_the_loop


def test_a_pool_under_a_limit_over_the_loop_is_taken_at_once(play: Play) -> None:
    pools = "from tfgpu_magic.frameworks import registry; [pool.grows for pool in registry.pools(settings=True)]"
    *_, grows = play(LOOP, "%tf_gpu limit 2GiB", USE, pools)

    assert "[False, False]" in grows


def test_growth_ends_where_the_cpu_is_divided(play: Play) -> None:
    divided = """cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)"""
    _, _, answer, taken, status = play(LOOP, divided, "%tf_gpu visible 0,1", USE, STATUS)

    assert "GPU 0  GPU:0       all that is free" in answer
    assert "[6528, 6528]" in taken
    assert policies(status) == ["default: up to 6.1 GiB"] * 2


def test_growth_ends_where_a_users_own_limit_is_on_a_hidden_gpu_and_is_kept(play: Play) -> None:
    _, _, answer, taken, after = play(LOOP, LIMITED, "%tf_gpu visible 1", USE, STATUS)

    assert "GPU 1  GPU:0       all that is free" in answer
    assert "[0, 6528]" in taken or "[256, 6528]" in taken
    assert "grow" not in policies(after)[1]


# The column Policy


def test_a_v1_sessions_limit_is_the_one_in_the_column(play: Play) -> None:
    *_, taken, after = play(IMPORT, "%tf_gpu limit 2GiB", SESSION.format(option="allow_growth = True"), LARGE, STATUS)

    assert "[4354, 256]" in taken
    assert policies(after) == ["limit 6.1 GiB", "limit 6.1 GiB"]


def test_what_a_v1_session_took_without_a_policy_is_its_pools_own_figure(play: Play) -> None:
    _, _, poisoned, _, after = play(
        IMPORT, SESSION.format(option="per_process_gpu_memory_fraction = 0.4"), STATUS, USE, STATUS
    )

    assert policies(poisoned) == ["unknown", "unknown"]
    assert policies(after) == ["default: up to 3.1 GiB"] * 2


def test_a_default_pool_is_told_by_its_size_once_it_is_there(play: Play) -> None:
    _, before, _, after = play(IMPORT, STATUS, USE, STATUS)

    assert policies(before) == ["default: no limit"] * 2
    assert policies(after) == ["default: up to 6.1 GiB"] * 2


def test_no_limit_is_shown_that_cudas_own_pool_does_not_keep_to(play: Play) -> None:
    *_, taken, after = play(IMPORT, "%tf_gpu growth --release", LIMITED, LARGE, STATUS)

    assert "[3328, 256]" in taken
    assert policies(after) == ["growth, gives back"] * 2


def test_nor_where_a_cell_has_set_that_allocator_after_a_limit(play: Play) -> None:
    *_, after = play(
        "%tf_gpu limit 2GiB", f"os.environ['TF_GPU_ALLOCATOR'] = 'cuda_malloc_async'; {IMPORT}", USE, STATUS
    )

    assert policies(after) == ["growth, gives back"] * 2


def test_a_change_that_rounds_to_what_was_asked_is_no_change(play: Play) -> None:
    near = "per_process_gpu_memory_fraction = 2049 / 8064"
    *_, after = play(IMPORT, "%tf_gpu limit 2GiB", SESSION.format(option=near), USE, STATUS)

    assert policies(after) == ["limit 2.0 GiB"] * 2
    assert "is not in force" not in after


# What a word drops


@pytest.mark.parametrize("words", ["growth", "growth --release", "growth off", "limit 1GiB", "limit 1=1GiB"])
def test_what_a_word_drops_of_a_users_own_limit_is_said(play: Play, words: str) -> None:
    _, answer = play(LIMITED, f"%tf_gpu {words}")

    assert "This undoes what set_logical_device_configuration was told for GPU 0 (limit 2 GiB)." in answer


@pytest.mark.parametrize("words", ["limit 0=2GiB", "visible 0"])
def test_what_a_word_keeps_of_it_is_not_said(play: Play, words: str) -> None:
    _, answer = play(LIMITED, f"%tf_gpu {words}")

    assert "This undoes" not in answer


def test_frameworks_18_logical_devices_with_priorities_are_shown_as_they_are(play: Play) -> None:
    parts = """import tensorflow as tf
one, two = tf.config.list_physical_devices("GPU")
sizes = {1024: -1, 2048: 0}
tf.config.set_logical_device_configuration(
    one, [tf.config.LogicalDeviceConfiguration(size, experimental_priority=sizes[size]) for size in sizes]
)"""
    _, _, taken, status, late = play(parts, parts, USE, STATUS, "%tf_gpu split 2")

    assert "[3328, 6528]" in taken
    assert policies(status) == ["split 1 GiB + 2 GiB", "default: up to 6.1 GiB"]
    assert "TensorFlow is already using the GPUs in this session, since In [5]" in late


# Hidden GPUs


def test_frameworks_10_visible_none_hides_gpus_from_jax_and_pytorch_too_and_says_so(play: Play) -> None:
    said, took = play("%tf_gpu visible none", "take(1)")

    assert "'no GPU'" in took
    assert "Hidden from this session, PyTorch and JAX included: GPU 0, 1." in said
    assert '`tf.config.set_visible_devices([], "GPU")`' in said


def test_frameworks_10_the_users_own_call_leaves_jax_its_gpus(play: Play) -> None:
    *_, held = play(IMPORT, 'tf.config.set_visible_devices([], "GPU"); x = tf.zeros(1000)', "start_jax()")

    assert "[6304, 6304]" in held


def test_frameworks_19_pick_says_that_pytorch_has_one_gpu_less(play: Play) -> None:
    said, fallen = play("%tf_gpu pick", "%tf_gpu pick 3 --or-cpu")

    assert "Hidden from this session, PyTorch and JAX included: GPU 1." in said
    assert "Hidden from this session, PyTorch and JAX included: GPU 0, 1." in fallen
    assert "set_visible_devices" not in said + fallen


def test_where_cuda_runs_only_tensorflow_is_kept_from_a_gpu(play: Play) -> None:
    *_, said, both = play(
        "%tf_gpu visible 0,1",
        "import tensorflow as tf; tf.config.list_physical_devices()",
        "%tf_gpu visible 0",
        "take(1, 1)",
    )

    assert "Hidden from TensorFlow: GPU 1." in said
    assert "'taken'" in both


# A framework that can use no GPU

NO_LIBRARY = (
    "TensorFlow finds no GPU, though CUDA shows it GPU 0, 1: it uses the CPU, and no limit is needed. `tfgpu doctor` "
    "looks for the cause, such as a library of CUDA's that is missing."
)
FALSE = ("CUDA does not show", "hidden", "instead", "using the GPUs", "Restart", "say it again", "too few", "In force")


def test_jupyter_1_tensorflow_that_lacks_a_library_is_told_of_as_that(without_cudnn: Play) -> None:
    waits, begun, status, late = without_cudnn(
        "%tf_gpu limit 40%", f"{IMPORT}; x = tf.ones((10, 10))", STATUS, "%tf_gpu limit 2GiB"
    )

    assert "`limit 40%` waits for TensorFlow's import." in waits
    assert [text.count(NO_LIBRARY) for text in (begun, status, late)] == [1, 1, 1]
    assert [word for word in FALSE if word in begun + status + late] == []
    assert policies(status) == ["not used by TensorFlow"] * 2


@pytest.mark.parametrize(
    "words", ["limit 40%", "growth", "visible 0", "pick; limit 1GiB", "pick --or-cpu", "split 2", "limit 0=1GiB"]
)
def test_each_word_is_answered_so_once_tensorflow_has_its_list(without_cudnn: Play, words: str) -> None:
    _, said, status = without_cudnn(
        "import tensorflow as tf; tf.config.list_physical_devices()", f"%tf_gpu {words}", STATUS
    )

    assert [text.count(NO_LIBRARY) for text in (said, status)] == [1, 1]
    assert [word for word in FALSE if word in said + status] == []


def test_an_administrators_limit_is_not_replaced_there(without_cudnn: Play) -> None:
    begun, status = without_cudnn(f"{IMPORT}; x = tf.ones((10, 10))", STATUS, env={"TFGPU_POLICY": "limit 40%"})

    assert NO_LIBRARY in status
    assert [word for word in FALSE if word in begun + status] == []


def test_pytorch_goes_on_beside_it(without_cudnn: Play) -> None:
    *_, said, took = without_cudnn(
        "import tensorflow as tf; tf.config.list_physical_devices()",
        "import torch",
        "%gpu limit 2GiB",
        "take(3), take(1)",
    )

    assert NO_LIBRARY in said
    assert "PyTorch takes up to 2 GiB of GPU 0, 1, as it needs it." in said
    assert "('out of memory', 'taken')" in took


# A variable that a later cell sets


def test_frameworks_5_a_limit_that_a_later_variable_undoes_names_the_variable(play: Play) -> None:
    _, _, said = play("%tf_gpu visible 0; limit 2GiB", "os.environ['CUDA_VISIBLE_DEVICES'] = '1'", IMPORT)

    assert (
        "CUDA does not show this process GPU 0, and did when it was asked. CUDA_VISIBLE_DEVICES is '1' now: restart, "
        "and take out the line that sets it, or run it before `%tf_gpu`." in said
    )
    assert "say it again" not in said


def test_frameworks_21_a_variable_that_came_too_late_is_named_in_the_answer(play: Play) -> None:
    *_, said, status = play(
        "import tensorflow as tf; tf.config.list_physical_devices()",
        "os.environ['CUDA_VISIBLE_DEVICES'] = '1'",
        "%tf_gpu limit 2GiB",
        STATUS,
    )

    assert [text.count("CUDA_VISIBLE_DEVICES='1' has no effect") for text in (said, status)] == [1, 1]


# Workers and programs


def test_frameworks_7_and_20_what_a_limit_does_not_hold_is_said_once(play: Play) -> None:
    first, second, both = play("%tf_gpu limit 25%", "%tf_gpu limit 2GiB", "%gpu limit 1GiB")
    said = (
        "Nothing limits TensorFlow in the programs and spawned workers that this session starts: call "
        '`tfgpu_magic.apply("limit 25%")` in them, use `IsolatedExecutor`, or write `!tfgpu run`.'
    )

    assert said in first
    assert "Nothing limits" not in second + both


@pytest.mark.parametrize("words", ["growth", "visible 0", "pick", "default"])
def test_nothing_is_said_of_them_without_a_limit(play: Play, words: str) -> None:
    assert "Nothing limits" not in play(f"%tf_gpu {words}")[0]


def test_a_configured_limit_says_nothing_of_them(play: Play) -> None:
    said = "".join(play(IMPORT, STATUS, env={"TFGPU_POLICY": "limit 25%"}))

    assert "Nothing limits" not in said


FORK = """import multiprocessing
child = multiprocessing.get_context("fork").Process(target=lambda: tf.zeros(1000))
child.start()
child.join()
child.exitcode"""


def test_frameworks_9_a_fork_after_the_import_can_use_no_gpu_and_is_told_of(play: Play) -> None:
    said, _, limited = play("%tf_gpu limit 25%", IMPORT, FORK)
    _, _, growing = play("%tf_gpu growth", IMPORT, FORK)

    assert "A process that is forked after TensorFlow's import can use no GPU." in said
    assert limited.rstrip().endswith(": 1"), limited
    assert growing.rstrip().endswith(": 0"), growing


@pytest.mark.parametrize(("words", "held"), [("", 6528), ("limit 25%", 2304)])
def test_frameworks_20_a_program_of_the_notebook_has_the_limit_that_it_asks_for(
    play: Play, words: str, held: int
) -> None:
    program = f"from tests.tf.on_machine import first_op; print([size // 2**20 for size in first_op({words!r})])"
    run = (
        f"import subprocess; subprocess.run([sys.executable, '-c', {program!r}], capture_output=True, text=True).stdout"
    )
    _, ran = play("%tf_gpu visible 0; limit 1GiB", run)

    assert f"[{held}, 0]" in ran


# PyTorch


@pytest.mark.parametrize("release", ["2.6", "2.13"])
def test_a_fraction_that_was_set_since_is_the_one_that_is_shown(play: Play, release: str) -> None:
    *_, took, status = play(
        "%gpu limit 2GiB",
        "import torch; take(1)",
        "own_fraction(0.9)",
        "take(4), mib()",
        "%gpu",
        env={"TORCH_STAND_IN": release},
    )

    assert "('taken', [" in took
    assert policies(status)[0] == "limit 7.1 GiB"
    assert "`limit 2GiB` was asked for, and other code has changed PyTorch's limit since: 7.1 GiB of GPU 0." in status
    assert "PyTorch takes up to 2 GiB of GPU 0" not in status


def test_jax_that_has_only_the_cpu_takes_nothing_of_a_gpu(play: Play) -> None:
    *_, said = play(
        "import jax", "start = jax._src.xla_bridge.backends()", "%gpu limit 2GiB", env={"JAX_PLATFORMS": "cpu"}
    )

    assert "JAX has only the CPU here, and takes nothing of a GPU." in said
    assert "JAX takes" not in said


def test_a_pytorch_that_is_built_for_the_cpu_takes_nothing_either(play: Play) -> None:
    built = "import torch, types; torch.version = types.SimpleNamespace(cuda=None, hip=None)"
    *_, said = play(built, "%gpu limit 2GiB")

    assert "PyTorch has only the CPU here, and takes nothing of a GPU." in said


# Words that blame


def test_a_v1_session_is_no_other_library_twice(play: Play) -> None:
    *_, said = play(IMPORT, SESSION.format(option="allow_growth = True"), "%tf_gpu limit 1GiB")

    assert "or another library uses the GPU." in said


def test_nobody_asked_for_growth_under_a_ceiling(play: Play) -> None:
    *_, status = play(f"{IMPORT}; os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] = 'false'", STATUS, env=CEILING)

    assert "`growth` was asked for" not in status
    assert "The ceiling here is `limit 2GiB`, and is not in force:" in status
