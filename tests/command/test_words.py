"""One table of commands: in a notebook and in a shell, flags are parsed alike, and each command explains itself."""

from __future__ import annotations

import re

import pytest

from tfgpu_magic.command import dispatch
from tfgpu_magic.errors import TfGpuError
from tfgpu_magic.notebook.words import arguments, line, table
from tfgpu_magic.policy.word import Flag

SHELL = [word.name for word, _ in table.in_shells()]
NOTEBOOK = [word.name for word in table.in_notebooks()]


@pytest.mark.parametrize(
    ("words", "flags", "values"),
    [
        ("status --json", {"--json": ""}, ()),
        ("run --wait=10m growth -- x -o y", {"--wait": "10m"}, ("growth",)),
        ("run pick --need 2GiB --or-cpu --script -- x", {"--script": ""}, ("pick", "--need", "2GiB", "--or-cpu")),
        ("run --limit=2GiB -- x", {}, ("limit 2GiB",)),
        ("exporter --cert a --key=b", {"--cert": "a", "--key": "b"}, ()),
    ],
)
def test_flags_and_values_are_separated(words: str, flags: dict[str, str], values: tuple[str, ...]) -> None:
    said = dispatch.read(words.split())

    assert (said.flags, said.values) == (flags, values)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("statsu", "'statsu' is not a command. Did you mean 'status'? `tfgpu help` lists them."),
        ("status --jsn", "'status' has no flag '--jsn'. Did you mean '--json'? Write `tfgpu status [--json]`."),
        ("status --js", "Did you mean '--json'?"),  # an abbreviation is none
        ("status --json --json", "--json is given twice."),
        ("status --json=1", "--json takes no value. Write `tfgpu status [--json]`."),
        ("status now", "`status now` cannot be done. Write `tfgpu status [--json]`."),
        ("status -- x.py", "`tfgpu status` takes no program: '-- x.py' is too much."),
        ("exporter --port", "--port needs N. Write `tfgpu exporter"),
        ("run --wiat 10m growth -- x", "Did you mean '--wait'?"),
        ("run limit 2GiB --gorw -- x", "Did you mean '--grow'?"),
        ("doctor --prak", "There are: --json, --quick."),  # none that is hidden
        ("plan", 'POLICY is missing. Write `tfgpu plan "POLICY"`.'),
        ("isolate", "`isolate` is a command of a notebook:   %%tf_gpu isolate"),
        ("park", "`park` is a command of a notebook:   %tf_gpu park"),
        ("limit 2GiB", '`limit` is a policy. To run a program under it:   tfgpu run "limit 2GiB" -- program.py'),
        ("limit", 'tfgpu run "limit 2GiB" -- program.py'),
        ("growth -- train.py 3", 'tfgpu run "growth" -- train.py 3'),
        ("limmit 3GiB", "'limmit' is not a command. Did you mean 'limit'? `limit` is a policy."),
        ("tensor", "Did you mean 'tensors'? `tensors` is a command of a notebook:   %tf_gpu tensors"),
        ("-- x.py", 'there is no command. To run a program:   tfgpu run "POLICY" -- x.py'),
    ],
)
def test_a_mistake_in_a_shell_is_told_with_what_may_be_meant(words: str, told: str) -> None:
    with pytest.raises(TfGpuError, match=re.escape(told)):
        dispatch.read(words.split())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("measure --fi", "'measure' has no flag '--fi'. Did you mean '--fit'? Write `%tf_gpu measure"),
        ("measure --to x", "Did you mean '--as'?"),
        ("track on --above", "--above needs SIZE. Write `%tf_gpu track on"),
        ("tensors x", "`tensors x` cannot be done. Write `%tf_gpu tensors`"),
        ("park --atuo 20m", "'park' has no flag '--atuo'. Did you mean '--auto'?"),
        ("unpark --without-gpu", "--without-gpu needs NAME. Write `%tf_gpu unpark`"),
        ("isolate --detach", "`isolate` stands above a cell. Write `%%tf_gpu isolate [-i NAMES]"),
        ("help me", "'me' is not a command of %tf_gpu."),
        ("doctor --quick", "`doctor` is a command of a shell:   !tfgpu doctor --quick"),
        ('run "growth" -- train.py', '`run` is a command of a shell:   !tfgpu run "growth" -- train.py'),
        ("limits 2GiB", "'limits' is not a command of %tf_gpu. Did you mean 'limit'?"),
    ],
)
def test_a_mistake_in_a_notebook_too(words: str, told: str) -> None:
    with pytest.raises(TfGpuError, match=re.escape(told)):
        line.run(words)


def test_a_flag_may_take_all_that_follows() -> None:
    flags, values = arguments.parse(
        "x", ["a", "--names", "b", "c", "--on"], [Flag("--names", "N ..."), Flag("--on")], "V", ""
    )

    assert (flags, values) == ({"--names": "b c", "--on": ""}, ("a",))


@pytest.mark.parametrize("name", SHELL)
def test_each_command_explains_itself_in_a_shell(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (form,) = (form for word, form in table.in_shells() if word.name == name)
    shown = []
    for words in ([name, "--help"], ["help", name], [name, "-h", "--", "x"]):
        assert dispatch.answer(words) == 0
        shown.append(capsys.readouterr().out)

    assert len(set(shown)) == 1 or name == "help"
    assert shown[0].startswith(f"Usage: tfgpu {form.usage if name == 'help' else name}"[:12])
    assert [flag.name for flag in form.flags if (f"  {flag.usage}" in shown[0]) is not bool(flag.meaning)] == []


@pytest.mark.parametrize("name", NOTEBOOK)
def test_each_word_explains_itself_in_a_notebook(name: str) -> None:
    (word,) = (word for word in table.in_notebooks() if word.name == name)
    shown = str(line.run(f"{name} --help"))

    if name != "help":
        assert str(line.run(f"help {name}")) == shown
        assert word.meaning[1:].split()[0] in shown
    flags = (*word.flags, *(word.above.flags if word.above else ()))
    assert [flag.name for flag in flags if flag.meaning and f"  {flag.usage}" not in shown] == []
    assert str(line.prepare("isolate --help", "1", None)()) == str(line.run("isolate -h"))
