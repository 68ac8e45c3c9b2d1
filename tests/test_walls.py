"""The house's walls: what only one room may touch, and what must not be imported; in a fresh interpreter or by text."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tfgpu_magic
from tfgpu_magic.notebook.words import table
from tfgpu_magic.parking.table import PARK, UNPARK
from tfgpu_magic.policy.parser import POLICY_WORDS

HOUSE = Path(tfgpu_magic.__file__).parent
ROOMS = sorted(path.relative_to(HOUSE).as_posix() for path in HOUSE.rglob("*.py"))
MODULES = [
    room.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for room in ROOMS if "__main__" not in room
]


def modules_after(statement: str) -> set[str]:
    """Return the modules that a fresh interpreter has after a statement."""
    code = f"{statement}\nimport sys; print(*sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(answer.stdout.split())


def imported_after(statement: str) -> set[str]:
    """Return the top-level ones of them."""
    return {name.partition(".")[0] for name in modules_after(statement)}


def nodes(room: str) -> Iterator[ast.AST]:
    yield from ast.walk(ast.parse((HOUSE / room).read_text()))


def imports(room: str) -> set[str]:
    """Return every module that a room imports, wherever in it."""
    found: set[str] = set()
    for node in nodes(room):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


def test_importing_the_package_imports_nothing_else() -> None:
    extra = imported_after("import tfgpu_magic") - imported_after("import importlib, typing, __future__")

    assert extra == {"tfgpu_magic"}


def test_the_whole_house_wakes_neither_tensorflow_nor_nvml() -> None:
    left = {"__init__", "root.driver"}
    house = [f"tfgpu_magic.{module}" for module in MODULES if module not in left]

    assert not imported_after("import " + ", ".join(house)) & {"tensorflow", "keras", "pynvml"}


def test_loading_the_extension_imports_nothing_that_its_words_need() -> None:
    modules = modules_after("import tfgpu_magic.notebook.loading")
    late = {
        "notebook.complete",
        "notebook.words.table",
        "engine.engine",
        "policy.parser",
        "ground.snapshot",
        "isolate.call",
        "isolate.watch",
        "ground.answer",
    }

    assert not modules & {f"tfgpu_magic.{room}" for room in late}
    assert not modules & {"tensorflow", "pynvml", "ipywidgets"}


def test_a_first_line_imports_nothing_that_only_others_need() -> None:
    after = modules_after("import tfgpu_magic.machine.collector_start")

    assert "tfgpu_magic.ground.snapshot" not in after  # its child begins
    line = modules_after("import tfgpu_magic.notebook.words.table, tfgpu_magic.engine.engine")
    assert not line & {"fractions", "html", "tfgpu_magic.ground.report"}
    words = {
        name
        for name in modules_after("import tfgpu_magic.notebook.words.line")
        if name.startswith("tfgpu_magic.notebook.words.")
    }
    assert words == {"tfgpu_magic.notebook.words.line"}


def test_a_word_is_a_file_and_a_line() -> None:
    files = {Path(room).stem for room in ROOMS if room.startswith("notebook/words/")}
    common = {"__init__", "table", "line", "arguments", "policy"}  # to all words, and to those of a policy
    elsewhere = {word.name for word in (*POLICY_WORDS, PARK, UNPARK)}

    assert files - common == {word.name for word in table.in_notebooks()} - elsewhere
    assert len({name for word in table.WORDS for name in word.names}) == sum(len(word.names) for word in table.WORDS)


def test_a_command_is_a_file_and_a_line() -> None:
    files = {Path(room).stem for room in ROOMS if room.startswith("command/")}
    common = {"__init__", "main", "dispatch", "word", "wording", "target", "program"}  # to all, and the parts of `run`

    assert files - common == {word.name for word, form in table.in_shells() if not form.as_word} - {"help"}


@pytest.mark.parametrize(
    ("theirs", "places"),
    [
        (("rich",), ["ground/terminal.py"]),
        (("tfgpu_magic.ground.html",), ["ground"]),
        (("pynvml",), ["root/driver.py", "machine/driver/nvml.py"]),
        (("tfgpu_magic.machine.driver.nvml.NvmlReader",), ["machine/collector.py", "doctor/cuda_child.py"]),  # opens it
        (("torch", "jax", "jaxlib", "cupy"), []),
        (("dask", "distributed"), ["isolate/dask.py"]),
        (("tfgpu_magic.simgpu",), ["command", "simgpu"]),
        (("tfgpu_magic.simgpu.Machine",), ["simgpu"]),
        (("jupyter_server", "tornado"), ["server"]),
        (("prometheus_client",), ["lab/exporter.py"]),
    ],
)
def test_only_one_place_knows_it(theirs: tuple[str, ...], places: list[str]) -> None:
    knowing = [
        room for room in ROOMS if any(f"{name}.".startswith(f"{one}.") for name in imports(room) for one in theirs)
    ]

    assert {room if room in places else room.partition("/")[0] for room in knowing} == set(places)


@pytest.mark.parametrize(
    ("module", "theirs"), [("command.status", {"rich"}), ("isolate.dask", {"dask", "distributed"})]
)
def test_what_few_need_is_imported_late(module: str, theirs: set[str]) -> None:
    assert not imported_after(f"import tfgpu_magic.{module}") & theirs


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("libcuda.so.1", "frameworks/cuda.py"),
        ("libnvidia-ml.so.1", "machine/driver/nvml_errors.py"),
    ],
)
def test_only_one_place_names_it(name: str, place: str) -> None:
    def names(node: ast.AST) -> bool:
        return isinstance(node, ast.Constant) and node.value == name

    assert [room for room in ROOMS if not room.startswith("simgpu/") and any(map(names, nodes(room)))] == [place]


def test_what_runs_as_root_is_short_and_imports_nothing_of_ours_but_itself() -> None:
    ours = {name for name in modules_after("import tfgpu_magic.root.__main__") if name.startswith("tfgpu_magic")}
    files = [room for room in ROOMS if room.startswith("root/")]
    theirs = {name.partition(".")[0] for room in files for name in imports(room) if not name.startswith("tfgpu_magic")}

    assert ours - {"tfgpu_magic"} == {
        f"tfgpu_magic.{room.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}" for room in files
    }
    assert sum(len((HOUSE / room).read_text().splitlines()) for room in ("__init__.py", *files)) <= 650
    assert theirs <= {*sys.stdlib_module_names, "pynvml"}
    assert not {name.rpartition(".")[0] or name for room in files for name in imports(room)} & {
        "subprocess", "socket", "ctypes", "pickle", "shutil", "multiprocessing",
    }  # fmt: skip


def test_nvml_py_knows_no_notebook() -> None:
    after = imported_after("import tfgpu_magic.machine.driver.nvml")

    assert not after & {"IPython", "ipykernel", "jupyter_core", "psutil"}


def test_a_look_imports_nothing_that_nvidia_ml_py_needs_on_windows_alone() -> None:
    after = modules_after("from tfgpu_magic.machine.driver.nvml import NvmlReader; NvmlReader().read()")

    assert "pynvml" in after
    assert not after & {"ctypes.util", "subprocess", "tempfile"}


def test_only_runtime_touches_tensorflow_and_a_handle_makes_its_model() -> None:
    importing = [room for room in ROOMS if any(name.startswith(("tensorflow", "keras")) for name in imports(room))]
    configuring = [
        room
        for room in ROOMS
        if any(
            isinstance(n, ast.Attribute) and n.attr == "config" and ast.unparse(n) == "tf.config" for n in nodes(room)
        )
    ]

    assert importing == [
        "frameworks/tensorflow/devices.py",
        "isolate/values/keras_objects.py",
    ]  # its load(), which is there to wake it
    assert {Path(room).parent.as_posix() for room in configuring} == {"frameworks/tensorflow"}


def test_only_errors_py_says_the_verdict_of_a_refusal() -> None:
    def says(node: ast.AST) -> bool:
        text = node.value if isinstance(node, ast.Constant) else ""
        return isinstance(text, str) and text.startswith(("Not applied", "Not started"))

    assert [room for room in ROOMS if any(map(says, nodes(room)))] == ["errors.py"]


def test_the_server_wakes_neither_tensorflow_nor_nvml() -> None:
    rooms = [f"tfgpu_magic.{module}" for module in MODULES if module.startswith("server.")]
    after = imported_after("import " + ", ".join(rooms))

    assert "jupyter_server" in after
    assert not after & {"tensorflow", "keras", "torch", "pynvml"}
    assert "jupyter_server" not in imported_after("import tfgpu_magic.server")  # until a server asks for it


def test_nothing_of_the_idle_steps_is_imported_where_there_is_no_administrators_file() -> None:
    away = "from pathlib import Path; from tfgpu_magic import policy; policy.FILE = Path('/nowhere')"
    after = modules_after(f"{away}; from tfgpu_magic.server.extensions import extensions; list(extensions())")

    assert {name for name in after if name.startswith("tfgpu_magic.lab.")} == {"tfgpu_magic.lab.extends"}


def test_what_runs_in_a_calls_process_knows_no_room_above_it() -> None:
    there = ("isolate/process/", "isolate/call.py", "isolate/inheritance.py")
    known = {name for room in ROOMS if room.startswith(there) for name in imports(room)}
    floors = ("errors.", "ground.", "policy.", "machine.", "tell.", "frameworks", "claims.", "engine.")
    below = (
        *floors,
        "isolate.call.",
        "isolate.inheritance.",
        "isolate.process.",
        "isolate.values.",
    )

    assert not [
        name
        for name in known
        if name.startswith("tfgpu_magic.") and not name.removeprefix("tfgpu_magic.").startswith(below)
    ]


def test_nothing_of_parking_is_imported_before_it_is_asked_for() -> None:
    first = modules_after(
        "import tfgpu_magic.notebook.loading, tfgpu_magic.notebook.words.table, tfgpu_magic.policy.parser"
    )

    words = {"tfgpu_magic.parking", "tfgpu_magic.parking.table"}
    assert not [name for name in first if name.startswith("tfgpu_magic.parking") and name not in words]


def test_only_runtime_writes_the_environment() -> None:
    def writes(node: ast.AST) -> bool:
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
        stored = any(ast.unparse(target).startswith("os.environ") for target in targets)
        called = isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "os.environ.update", "os.environ.pop", "os.environ.setdefault", "os.environ.clear", "os.putenv",
        )  # fmt: skip
        return stored or called

    ours = [room for room in ROOMS if not room.startswith("simgpu/")]  # a simulated machine's own process
    assert [room for room in ours if any(map(writes, nodes(room)))] == ["frameworks/runtime.py"]


DECIDING = ("parser", "resolver", "plan", "fit", "decide", "easier", "refusal")
DESCRIBING = ("script", "process_state")
PURE = DECIDING + DESCRIBING
DATA = ("policy", "memory", "arguments")
REQUESTS = [room for room in ROOMS if room.startswith("policy/requests/")]


@pytest.mark.parametrize("room", [*(f"policy/{room}.py" for room in (*PURE, *DATA)), *REQUESTS])
def test_the_pure_rooms_touch_nothing(room: str) -> None:
    assert not imports(room) & {"os", "sys", "subprocess", "ctypes", "socket", "pathlib", "psutil"}


def test_what_can_be_asked_knows_no_stage_that_asks_it() -> None:
    stages = {f"tfgpu_magic.policy.{room}" for room in PURE}
    known = {name for room in [*REQUESTS, "policy/policy.py"] for name in imports(room)}

    assert not {name for name in known if name.rpartition(".")[0] in stages or name in stages}


def test_all_names_what_is_public_and_documents_it() -> None:
    public = [getattr(tfgpu_magic, name) for name in tfgpu_magic.__all__]

    assert tfgpu_magic.__all__ == sorted(tfgpu_magic.__all__)
    assert tfgpu_magic._HOMES.keys() - {"__version__", "_resume"} == set(tfgpu_magic.__all__)
    assert all(thing.__doc__ for thing in public)


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'gpus'"):
        tfgpu_magic.gpus  # noqa: B018
