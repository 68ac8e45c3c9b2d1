"""What the words behind `--` are taken for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfgpu_magic.command.target import interpreter, is_program


@pytest.mark.parametrize(
    ("words", "program"),
    [
        ("train.py --lr 1", True),
        ("-m package.train -x", True),
        ("-c pass", True),
        ("train.sh", False),
        ("bash train.py", False),
    ],
)
def test_a_python_program_is_known_by_its_name(words: str, program: bool) -> None:
    assert is_program(words.split()) is program


def test_a_folder_with_a_main_module_is_a_program(tmp_path: Path) -> None:
    (tmp_path / "__main__.py").write_text("")

    assert is_program([str(tmp_path)])


@pytest.mark.parametrize(
    ("words", "python"),
    [
        ("python", "python"),
        ("python - -c", "python"),
        ("python -V", "python -V"),
        ("python train.py -c 1", "python"),
        ("/usr/bin/python3.11 -O -Wignore -X dev train -m", "/usr/bin/python3.11 -O -Wignore -X dev"),
        ("python -um pip -V", "python -u"),
        ("python -mpip", "python"),
        ("python -Bc pass", "python -B"),
        ("python --check-hash-based-pycs always x -u", "python --check-hash-based-pycs always"),
        ("python -u -- x -u", "python -u"),
    ],
)
def test_an_interpreter_is_told_from_its_program(words: str, python: str) -> None:
    assert interpreter(words.split()) == python.split()


@pytest.mark.parametrize(
    "words",
    [
        *("pythonic x", "sh -c python", "/nowhere/tool"),
        *("nice python x", "env python x", "echo python -c 1", "/nowhere/tool python x"),
    ],
)
def test_what_is_not_called_as_python_is_any_command(words: str) -> None:
    assert interpreter(words.split()) == []


@pytest.mark.parametrize("line", ["#!/usr/bin/env python3", "#! /opt/python3.11 -u", "#!/usr/bin/env -S python -u"])
def test_a_file_is_what_its_first_line_says(tmp_path: Path, line: str) -> None:
    tool = tmp_path / "tool"
    tool.write_text(f"{line}\n")
    tool.chmod(0o755)

    assert interpreter([str(tool), "x"]) == line[2:].replace("/usr/bin/env", "").replace("-S", "").split()
