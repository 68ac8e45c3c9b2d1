"""What the words behind `--` are taken for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfgpu_magic.command.target import PythonProgram, interpreter, python_program


@pytest.mark.parametrize(
    ("words", "program"),
    [
        ("train.py --lr 1", PythonProgram("script", "train.py", ("--lr", "1"))),
        ("-m package.train -x", PythonProgram("-m", "package.train", ("-x",))),
        ("-c pass", PythonProgram("-c", "pass")),
        ("-m", None),
        ("train.sh", None),
        ("bash train.py", None),
    ],
)
def test_a_python_program_is_known_by_its_name(words: str, program: PythonProgram | None) -> None:
    assert python_program(words.split()) == program


def test_a_folder_with_a_main_module_is_a_program(tmp_path: Path) -> None:
    (tmp_path / "__main__.py").write_text("")

    assert python_program([str(tmp_path)]) == PythonProgram("script", str(tmp_path))


@pytest.mark.parametrize(
    ("words", "python", "program"),
    [
        ("python train.py -c 1", "python", "train.py -c 1"),
        ("/usr/bin/python3.11 -O -Wignore -X dev train -m", "/usr/bin/python3.11 -O -Wignore -X dev", "train -m"),
        ("python -um pip -V", "python -u", "-m pip -V"),
        ("python -mpip", "python", "-m pip"),
        ("python -Bc pass", "python -B", "-c pass"),
        ("python --check-hash-based-pycs always x -u", "python --check-hash-based-pycs always", "x -u"),
        ("python -u -- x -u", "python -u", "x -u"),
    ],
)
def test_an_interpreter_is_told_from_its_program(words: str, python: str, program: str) -> None:
    assert interpreter(words.split()) == (python.split(), program.split())


@pytest.mark.parametrize(
    "words",
    [
        *("python", "python -", "python -V", "pythonic x", "sh -c python", "/nowhere/tool"),
        *("nice python x", "env python x", "echo python -c 1", "/nowhere/tool python x"),
    ],
)
def test_what_runs_no_program_of_python_is_any_command(words: str) -> None:
    assert interpreter(words.split()) is None


@pytest.mark.parametrize("line", ["#!/usr/bin/env python3", "#! /opt/python3.11 -u", "#!/usr/bin/env -S python -u"])
def test_a_file_is_what_its_first_line_says(tmp_path: Path, line: str) -> None:
    tool = tmp_path / "tool"
    tool.write_text(f"{line}\n")
    tool.chmod(0o755)

    found = interpreter([str(tool), "x"])

    assert found is not None
    assert found[0] == line.removeprefix("#!").replace("/usr/bin/env", "").replace("-S", "").split()
    assert found[1] == [str(tool), "x"]
