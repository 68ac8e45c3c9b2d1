"""A Python program under `tfgpu run` sees, says and returns what it does under Python itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.command.shell import TFGPU, Done, run, running, tfgpu
from tests.machines import machine_of
from tests.processes import QUIET
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.report_files import ReportFiles
from tfgpu_magic.simgpu import Machine

machine = machine_of("2x8GiB")


def both(machine: Machine, folder: Path, *words: str, **options: Any) -> tuple[Done, Done]:
    """Run a command by itself and under `tfgpu run`."""
    return (
        run(machine, *words, cwd=folder, **options),
        tfgpu(machine, "run", "growth", "--", *words, cwd=folder, **options),
    )


def told(done: Done) -> tuple[str, str, int]:
    return done.stdout, done.stderr, done.returncode


ALIKE = {
    "what it sees": "import sys; print(sys.argv, __file__, sys.path[0], list(globals()), __spec__, type(__loader__))",
    "input": "import sys; print(sys.stdin.read().upper(), end='')",
    "its own end": "import sys; print('out'); sys.exit(7)",
    "its own last words": "import sys; sys.exit('not today')",
    "an error": "def f():\n    return 1 / 0\n\nf()",
    "an error in an error": "try:\n    {}['a']\nexcept KeyError:\n    raise ValueError('b')",
    "an error of its syntax": "print('never')\nx = = 1",
    "its own hook": "import sys; sys.excepthook = lambda *error: print('hook', error[0], error[2].tb_next); 1 / 0",
    "an interrupt": "import os, signal; os.kill(os.getpid(), signal.SIGINT); import time; time.sleep(60)",
    "a signal": "import os, signal; print('x', flush=True); os.kill(os.getpid(), signal.SIGTERM)",
    "what it does at its end": "import atexit; atexit.register(print, 'last'); print('first')",
    "a thread that goes on": "import threading; threading.Timer(0.2, print, ['later']).start(); print('end')",
    "annotations of this day": "def f(x: int): ...\nprint(f.__annotations__)",
    "pickles of its own": (
        "import pickle\nclass Own: ...\nif __name__ == '__main__':\n"
        "    print(type(pickle.loads(pickle.dumps(Own()))) is Own, Own.__module__)"
    ),
    "workers that it spawns": (
        "import multiprocessing, sys\ndef twice(x): return 2 * x\nif __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.map(twice, [1, 2]), sys.argv)"
    ),
    "its main module": "import sys; me = sys.modules['__main__']; print(me.__dict__ is globals(), me.__name__)",
    "a reader that has gone": "import os; r, w = os.pipe(); os.close(r); os.write(w, b'x')",
}


@pytest.mark.parametrize("code", ALIKE.values(), ids=ALIKE)
def test_a_script_is_run_as_python_runs_it(machine: Machine, tmp_path: Path, code: str) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "program 1.py").write_text(code)
    words = ("./a folder/program 1.py", "two words", "--epochs=3", "--", "-h")

    expected = run(machine, sys.executable, *words, cwd=tmp_path, input="in\n")
    done = tfgpu(machine, "run", "growth", "--", *words, cwd=tmp_path, input="in\n")

    assert told(done) == told(expected)


SHOW = "import sys; print(sys.argv, sys.path[0], __name__, __spec__ and __spec__.name, sys.flags, len(sys.warnoptions))"


@pytest.mark.parametrize(
    "words",
    [
        ("-m", "package", "1 2"),
        ("-m", "package.broken"),
        ("-m", "missing"),
        ("-c", SHOW, "-x"),
        ("-c", "1 / 0"),
        ("package", "directory"),
        ("package.zip", "file"),
        ("missing.py",),
        ("package/broken.py",),
    ],
)
def test_modules_code_and_archives_too(machine: Machine, tmp_path: Path, words: tuple[str, ...]) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__main__.py").write_text(SHOW)
    (package / "broken.py").write_text("raise LookupError('broken')")
    with zipfile.ZipFile(tmp_path / "package.zip", "w") as archive:
        archive.write(package / "__main__.py", "__main__.py")

    expected = run(machine, sys.executable, *words, cwd=tmp_path)
    done = tfgpu(machine, "run", "growth", "--script", "--", *words, cwd=tmp_path)

    said = expected.stderr.replace(f"{sys.executable}: can't", "tfgpu: can't")
    assert told(done) == (expected.stdout, said, expected.returncode)


@pytest.mark.parametrize(
    "options", [(), ("-O", "-X", "dev"), ("-uWerror",), ("-I",), ("-Es",), ("-Bc", SHOW), ("-mtimeit", "-h")]
)
def test_a_python_with_options_keeps_them(machine: Machine, tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "show").write_text(SHOW)
    paths = {**QUIET, "PYTHONPATH": os.pathsep.join(sys.path)}
    expected, done = both(machine, tmp_path, sys.executable, *options, "show", "a b", env=paths)

    assert done.returncode == expected.returncode
    assert done.stdout.replace("safe_path=False", "") == expected.stdout.replace("safe_path=False", "")


def test_modules_of_the_current_folder_are_not_in_the_way(machine: Machine, tmp_path: Path) -> None:
    for name in ("argparse", "json", "logging", "random", "shlex", "subprocess", "psutil"):
        (tmp_path / f"{name}.py").write_text("raise LookupError('theirs')")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "program.py").write_text(SHOW)
    expected, done = both(machine, tmp_path, sys.executable, "folder/program.py")

    assert told(done) == (expected.stdout, "", 0)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="-P is new in Python 3.11")
@pytest.mark.parametrize("program", ["folder", "folder/__main__.py"])
def test_python_that_searches_nowhere_finds_what_is_in_an_archive(
    machine: Machine, tmp_path: Path, program: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__main__.py").write_text("import own; print(own.__file__)")
    (tmp_path / "folder" / "own.py").touch()
    expected, done = both(machine, tmp_path, sys.executable, "-P", program)

    assert told(done) == told(expected)


@pytest.mark.parametrize("code", ["own = 'seen'", "import sys; own = 'seen'; sys.exit(3)"])
def test_python_that_stays_after_a_program_stays(machine: Machine, tmp_path: Path, code: str) -> None:
    (tmp_path / "program.py").write_text(code)
    expected, done = both(machine, tmp_path, sys.executable, "-i", "program.py", input="print(own)\n")

    assert told(done) == told(expected)


def test_descriptors_that_a_program_closes_are_its_own(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import os; os.closerange(3, 64); kept = [open(f'kept-{n}', 'w') for n in range(4)]\n"
        "for file in kept: file.write('all')"
    )
    tfgpu(machine, "run", "limit 1GiB", "--", "program.py", cwd=tmp_path)

    assert [path.read_text() for path in tmp_path.glob("kept-*")] == ["all"] * 4


ASKED = "import tfgpu_magic.frameworks.runtime as r; print(r.RUNTIME.plan.asked)"
PLANNED = "from tfgpu_magic.engine import engine; print(*engine.plan('visible 0; limit 60% --grow').notes)"


@pytest.mark.parametrize(
    ("policy", "command", "cell", "said", "unsaid"),
    [
        ("limit 40%", "jupyter run", ASKED, "limit 40%\n", "limit 60%"),
        ("limit 60%", "jupyter-run", PLANNED, "up to 4.8 GiB in all", "are promised"),  # not to Jupyter as well
    ],
)
def test_a_limit_for_jupyter_holds_in_its_kernels(
    machine: Machine, tmp_path: Path, policy: str, command: str, cell: str, said: str, unsaid: str
) -> None:
    (tmp_path / "cell.py").write_text(f"%load_ext tfgpu_magic\n{cell}")
    jupyter, *run = command.split()
    own = {**QUIET, "IPYTHONDIR": str(tmp_path / "ipython"), "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime")}
    words = str(Path(sys.executable).with_name(jupyter)), *run, "cell.py"
    done = tfgpu(machine, "run", policy, "--", *words, cwd=tmp_path, env=own)

    assert said in done.stdout, done.stderr
    assert unsaid not in done.stdout


def test_ctrl_c_in_a_terminal_is_the_programs(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import time; print('ready', flush=True); time.sleep(600)")
    with running(machine, "growth", "--", "program.py", cwd=tmp_path) as program:
        os.killpg(program.pid, signal.SIGINT)
        status = program.process.wait(30)

    assert status == -signal.SIGINT  # 130 for a shell


def test_a_pipe_whose_reader_ends_ends_the_program(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "lines.py").write_text("while True: print('a line')")

    def through(*command: str) -> tuple[str, str, int]:
        with machine.popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            first = process.stdout.readline()
            process.stdout.close()
            return first, process.stderr.read(), process.wait(30)

    assert through(*TFGPU, "run", "growth", "--", "lines.py") == through(sys.executable, "lines.py")


def test_nothing_runs_beside_a_program_before_it_imports_a_framework(machine: Machine, tmp_path: Path) -> None:
    code = "import threading; print([t.name for t in threading.enumerate() if 'child' not in t.name])"

    assert tfgpu(machine, "run", "limit 1GiB", "--", "-c", code).stdout == "['MainThread']\n"


def test_a_program_that_forks_and_ends_leaves_its_parents_report(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "forks.py").write_text(
        "import os, sys\nif os.fork() == 0: sys.exit()\nos.wait(); print('ready', flush=True); sys.stdin.read()"
    )
    with (
        running(machine, "limit 1GiB", "--", "forks.py", cwd=tmp_path) as program,
        mock.patch.dict(os.environ, machine.environ()),
        BoardDirectory() as place,
    ):
        reports = ReportFiles(place).read()

    assert [report.pid for report in reports] == [program.pid]
