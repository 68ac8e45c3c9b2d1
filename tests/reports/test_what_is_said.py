"""What an answer, a table and a page say of growth, limits and hidden GPUs is what the frameworks do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.frameworks.cells_on_machine import stage
from tests.magic.cells import IMPORT, NOT, Cells, Play, playing
from tfgpu_magic.simgpu import Machine

LISTED = f"{IMPORT}; tf.config.list_physical_devices()"
LOOP = f"""{IMPORT}
for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)"""
LIMITED = f"""{IMPORT}
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_logical_device_configuration(gpus[0], [tf.config.LogicalDeviceConfiguration(memory_limit=2048)])"""
PRIORITIES = f"""{IMPORT}
one, two = tf.config.list_physical_devices("GPU")
sizes = {{1024: -1, 2048: 0}}
tf.config.set_logical_device_configuration(
    one, [tf.config.LogicalDeviceConfiguration(size, experimental_priority=sizes[size]) for size in sizes]
)"""
TWO_CPUS = """cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)"""
USE = """for gpu in tf.config.list_logical_devices("GPU"):
    with tf.device(gpu.name):
        x = tf.zeros([1000])
mib()"""
SESSION = """config = tf.compat.v1.ConfigProto()
config.gpu_options.{option}
session = tf.compat.v1.Session(config=config)"""
LARGE = "x = tf.zeros([3 * 2**28])\nmib()"
POOLS = "from tfgpu_magic.frameworks import registry; [pool.grows for pool in registry.pools(settings=True)]"
FORK = """import multiprocessing
child = multiprocessing.get_context("fork").Process(target=lambda: tf.zeros(1000))
child.start()
child.join()
child.exitcode"""
CPU_BUILD = "import torch, types; torch.version = types.SimpleNamespace(cuda=None, hip=None)"

STATUS = "%tf_gpu"
HIDDEN = "Hidden from this session, PyTorch and JAX included: GPU"
UNLIMITED = "Nothing limits TensorFlow in the programs and spawned workers that this session starts: call"
UNDOES = "This undoes what set_logical_device_configuration was told for GPU 0 (limit 2 GiB)."
NO_LIBRARY = "TensorFlow finds no GPU, though CUDA shows it GPU 0, 1: it uses the CPU, and no limit is needed."
"""What is said once where CUDA works, and TensorFlow lacks one of its libraries."""
FALSE = ("CUDA does not show", "hidden", "instead", "using the GPUs", "Restart", "say it again", "too few", "In force")


@pytest.fixture(scope="module")
def play() -> Iterator[Play]:
    with playing("2x8GiB") as (play, _):
        yield play


@pytest.fixture(scope="module")
def without_cudnn() -> Iterator[Play]:
    """Give cells where CUDA works, and TensorFlow lacks one of its libraries."""
    with Machine.create("2x8GiB", shared=True) as lacking, stage(lacking) as play:
        for library in lacking.path.parent.rglob("libcudnn*"):
            library.unlink()
        yield play


def policies(table: str) -> list[str]:
    """Return the column Policy of a table of two GPUs."""
    header, *rows = table[table.index(" GPU  Name") :].splitlines()
    return [row[header.index("Policy") :].strip() for row in rows[:2]]


@pytest.mark.parametrize(
    ("words", "takes", "held"),
    [
        ("limit 0=2GiB", ["limit 2 GiB", "all that is free"], "[2304, 6528]"),
        ("split 2GiB 2GiB --gpu 0", ["split 2 × 2 GiB", "all that is free"], "[4352, 6528]"),
        ("limit 2GiB", ["limit 2 GiB", "limit 2 GiB"], "[2304, 2304]"),
    ],
)
def test_growth_by_the_loop_ends_on_every_gpu_with_a_limit_on_one(
    play: Play, words: str, takes: list[str], held: str
) -> None:
    _, answer, before, _, after = Cells(LOOP, f"%tf_gpu {words}", STATUS, (USE, held), STATUS).play(play)
    told = [line[line.index("GPU:") :] for line in answer.splitlines() if line.startswith("   GPU ")]

    assert all(one in line and "grow" not in line for one, line in zip(takes, told, strict=True)), answer
    # Before the first op the other GPU's limit is not there yet, and its row speaks of the loop's growth.
    assert "grow" not in "".join(one for one in policies(before) if "limit" not in one)
    assert "grow" not in "".join(policies(after)), after


COLUMN = {
    "growth ends where the CPU is divided": (
        (LOOP, TWO_CPUS, ("%tf_gpu visible 0,1", "GPU 0  GPU:0       all that is free"), (USE, "[6528, 6528]")),
        ["default: up to 6.1 GiB"] * 2,
    ),
    "a v1 session's limit is the one that counts": (
        (IMPORT, "%tf_gpu limit 2GiB", SESSION.format(option="allow_growth = True"), (LARGE, "[4354, 256]")),
        ["limit 6.1 GiB"] * 2,
    ),
    "before its pool is there, what a v1 session takes is unknown": (
        (IMPORT, SESSION.format(option="per_process_gpu_memory_fraction = 0.4")),
        ["unknown"] * 2,
    ),
    "then it is the pool's own figure": (
        (IMPORT, SESSION.format(option="per_process_gpu_memory_fraction = 0.4"), STATUS, USE),
        ["default: up to 3.1 GiB"] * 2,
    ),
    "a default pool has no limit before it is there": ((IMPORT,), ["default: no limit"] * 2),
    "a default pool is told by its size once it is there": ((IMPORT, STATUS, USE), ["default: up to 6.1 GiB"] * 2),
    "no limit is shown that CUDA's own pool does not keep to": (
        (IMPORT, "%tf_gpu growth --release", LIMITED, (LARGE, "[3328, 256]")),
        ["growth, gives back"] * 2,
    ),
    "nor where a cell has set that allocator after a limit": (
        ("%tf_gpu limit 2GiB", f"os.environ['TF_GPU_ALLOCATOR'] = 'cuda_malloc_async'; {IMPORT}", USE),
        ["growth, gives back"] * 2,
    ),
    "a change that rounds to what was asked is no change": (
        (
            *(IMPORT, "%tf_gpu limit 2GiB"),
            *(SESSION.format(option="per_process_gpu_memory_fraction = 2049 / 8064"), USE),
            (STATUS, NOT + "is not in force"),
        ),
        ["limit 2.0 GiB"] * 2,
    ),
    "frameworks 18: logical devices with priorities are shown as they are": (
        (PRIORITIES, PRIORITIES, (USE, "[3328, 6528]"), ("%tf_gpu split 2", "already using the GPUs")),
        ["split 1 GiB + 2 GiB", "default: up to 6.1 GiB"],
    ),
}


@pytest.mark.parametrize(("cells", "column"), COLUMN.values(), ids=COLUMN)
def test_the_column_policy_has_what_holds(
    play: Play, cells: tuple[str | tuple[str, ...], ...], column: list[str]
) -> None:
    assert policies(Cells(*cells, STATUS).play(play)[-1]) == column


@pytest.mark.parametrize("release", ["2.6", "2.13"])
def test_a_fraction_of_pytorchs_that_was_set_since_is_the_one_that_is_shown(play: Play, release: str) -> None:
    *_, status = Cells(
        *("%gpu limit 2GiB", "import torch; take(1)", "own_fraction(0.9)", ("take(4), mib()", "('taken', [")),
        ("%gpu", "and other code has changed PyTorch's limit since: 7.1 GiB of GPU 0.", NOT + "PyTorch takes up to"),
        env={"TORCH_STAND_IN": release},
    ).play(play)

    assert policies(status)[0] == "limit 7.1 GiB"


SAID = {
    "a limit over the loop warns of the room for CUDA's libraries": Cells(
        LOOP, ("%tf_gpu limit 7.4GiB", "Warning: of GPU 0, 1 this leaves")
    ),
    "as one without it": Cells(IMPORT, ("%tf_gpu limit 7.4GiB", "Warning: of GPU 0, 1 this leaves")),
    "a pool under a limit over the loop is taken at once": Cells(
        LOOP, "%tf_gpu limit 2GiB", USE, (POOLS, "[False, False]")
    ),
    "growth ends where a user's own limit is on a hidden GPU and is kept": Cells(
        *(LOOP, LIMITED, ("%tf_gpu visible 1", "GPU 1  GPU:0       all that is free"), (USE, ", 6528]"))
    ),
    **{
        f"what `{words}` drops of a user's own limit is said": Cells(LIMITED, (f"%tf_gpu {words}", UNDOES))
        for words in ("growth", "growth --release", "growth off", "limit 1GiB", "limit 1=1GiB")
    },
    **{
        f"what `{words}` keeps of it is not": Cells(LIMITED, f"%tf_gpu {words}", never="This undoes")
        for words in ("limit 0=2GiB", "visible 0")
    },
    "frameworks 10: visible none hides GPUs from JAX and PyTorch too, and says so": Cells(
        ("%tf_gpu visible none", f"{HIDDEN} 0, 1.", '`tf.config.set_visible_devices([], "GPU")`'),
        ("take(1)", "'no GPU'"),
    ),
    "frameworks 10: the user's own call leaves JAX its GPUs": Cells(
        *(IMPORT, 'tf.config.set_visible_devices([], "GPU"); x = tf.zeros(1000)', ("start_jax()", "[6304, 6304]"))
    ),
    "frameworks 19: pick says that PyTorch has one GPU less": Cells(
        *(("%tf_gpu pick", f"{HIDDEN} 1."), ("%tf_gpu pick 3 --or-cpu", f"{HIDDEN} 0, 1.")), never="set_visible_devices"
    ),
    "where CUDA runs only TensorFlow is kept from a GPU": Cells(
        *("%tf_gpu visible 0,1", LISTED, ("%tf_gpu visible 0", "Hidden from TensorFlow: GPU 1.")),
        ("take(1, 1)", "'taken'"),
    ),
    "frameworks 5: a limit that a later variable undoes names the variable": Cells(
        *("%tf_gpu visible 0; limit 2GiB", "os.environ['CUDA_VISIBLE_DEVICES'] = '1'"),
        (IMPORT, "CUDA does not show this process GPU 0", "CUDA_VISIBLE_DEVICES is '1' now", NOT + "say it again"),
    ),
    "frameworks 21: a variable that came too late is named in the answer": Cells(
        *(LISTED, "os.environ['CUDA_VISIBLE_DEVICES'] = '1'"),
        ("%tf_gpu limit 2GiB", "CUDA_VISIBLE_DEVICES='1' has no effect"),
        (STATUS, "CUDA_VISIBLE_DEVICES='1' has no effect"),
    ),
    "frameworks 7 and 20: what a limit does not hold is said once": Cells(
        ("%tf_gpu limit 25%", UNLIMITED, '`tfgpu_magic.apply("limit 25%")`', "`IsolatedExecutor`", "`!tfgpu run`"),
        ("%tf_gpu limit 2GiB", NOT + UNLIMITED),
        ("%gpu limit 1GiB", NOT + UNLIMITED),
    ),
    "what a line has noted is not said again at the import": Cells(
        *("%tf_gpu growth", ("%tf_gpu limit 2GiB", "This replaces `growth`.")),
        (IMPORT, "`limit 2GiB` is in force", NOT + "This replaces"),
    ),
    "what a framework cannot have is not said again at the next one's import": Cells(
        *(("import torch", "JAX is not held to all of `limit 3=2GiB`."), ("import jax", NOT + "is not held to all")),
        env={"TFGPU_POLICY": "limit 3=2GiB"},
    ),
    "nothing is said of them without a limit": Cells("%tf_gpu growth; visible 0", "%tf_gpu pick", never=UNLIMITED),
    "nor under a configured one": Cells(IMPORT, STATUS, never=UNLIMITED, env={"TFGPU_POLICY": "limit 25%"}),
    "frameworks 9: a fork after the import can use no GPU under a limit, and that is told": Cells(
        ("%tf_gpu limit 25%", "A process that is forked after TensorFlow's import can use no GPU."),
        IMPORT,
        (FORK, ": 1"),
    ),
    "frameworks 9: under growth it can": Cells("%tf_gpu growth", IMPORT, (FORK, ": 0")),
    "JAX that has only the CPU takes nothing of a GPU": Cells(
        *("import jax", "start = jax._src.xla_bridge.backends()"),
        ("%gpu limit 2GiB", "JAX has only the CPU here, and takes nothing of a GPU.", NOT + "JAX takes"),
        env={"JAX_PLATFORMS": "cpu"},
    ),
    "a PyTorch that is built for the CPU takes nothing either": Cells(
        CPU_BUILD, ("%gpu limit 2GiB", "PyTorch has only the CPU here, and takes nothing of a GPU.")
    ),
    "a v1 session is no other library twice": Cells(
        *(IMPORT, SESSION.format(option="allow_growth = True")),
        ("%tf_gpu limit 1GiB", "or another library uses the GPU."),
    ),
    "nobody asked for growth under a ceiling": Cells(
        f"{IMPORT}; os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] = 'false'",
        (STATUS, NOT + "`growth` was asked for", "The ceiling here is `limit 2GiB`, and is not in force:"),
        env={"TFGPU_CEILING": "limit 2GiB"},
    ),
}


@pytest.mark.parametrize("cells", SAID.values(), ids=SAID)
def test_what_is_said_under_a_cell_is_so(play: Play, cells: Cells) -> None:
    cells.play(play)


@pytest.mark.parametrize(("words", "held"), [("", 6528), ("limit 25%", 2304)])
def test_frameworks_20_a_program_of_the_notebook_has_the_limit_that_it_asks_for(
    play: Play, words: str, held: int
) -> None:
    program = f"from tests.tf.on_machine import first_op; print([size // 2**20 for size in first_op({words!r})])"
    run = f"subprocess.run([sys.executable, '-c', {program!r}], capture_output=True, text=True).stdout"
    Cells("%tf_gpu visible 0; limit 1GiB", (f"import subprocess; {run}", f"[{held}, 0]")).play(play)


def true(said: list[str]) -> None:
    """Check that the missing library is named once in each of these, and nothing else is blamed."""
    assert [text.count(NO_LIBRARY) for text in said] == [1] * len(said)
    assert [word for word in FALSE if word in "".join(said)] == []


def test_jupyter_1_tensorflow_that_lacks_a_library_is_told_of_as_that(without_cudnn: Play) -> None:
    waits = "%tf_gpu limit 40%", "`limit 40%` takes effect when TensorFlow is imported."
    _, *said = Cells(waits, f"{IMPORT}; x = tf.ones((10, 10))", STATUS, "%tf_gpu limit 2GiB").play(without_cudnn)

    true(said)
    assert policies(said[1]) == ["not used by TensorFlow"] * 2


def test_each_word_is_answered_so_once_tensorflow_has_its_list(without_cudnn: Play) -> None:
    words = ("growth", "visible 0", "pick; limit 1GiB", "pick --or-cpu", "split 2")
    asked = [cell for one in words for cell in ("%tf_gpu default", f"%tf_gpu {one}", STATUS)]
    _, *said = Cells(LISTED, *asked).play(without_cudnn)

    true([text for cell, text in zip(asked, said, strict=True) if "default" not in cell])


def test_an_administrators_limit_is_not_replaced_there(without_cudnn: Play) -> None:
    used = Cells(f"{IMPORT}; x = tf.ones((10, 10))", STATUS, env={"TFGPU_POLICY": "limit 40%"})
    begun, status = used.play(without_cudnn)

    true([status])
    assert [word for word in FALSE if word in begun] == []


def test_pytorch_goes_on_beside_it(without_cudnn: Play) -> None:
    Cells(
        *(LISTED, "import torch"),
        ("%gpu limit 2GiB", NO_LIBRARY, "PyTorch takes up to 2 GiB of GPU 0, 1, as it needs it."),
        ("take(3), take(1)", "('out of memory', 'taken')"),
    ).play(without_cudnn)
