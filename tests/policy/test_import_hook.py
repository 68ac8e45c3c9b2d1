"""Several functions wait for one module's import: each is called once, in order, and an interrupt loses none."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tfgpu_magic.frameworks import NAMES, import_hook


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"imported_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(NAMES, name, "It")
    return name


def test_each_function_is_called_once_and_in_order(module: str) -> None:
    called: list[int] = []
    functions = [lambda number=number: called.append(number) for number in range(3)]
    for do in [*functions, *functions]:
        import_hook.call_at_import(do, module)
    importlib.import_module(module)
    for do in functions:
        import_hook.call_at_import(do, module)
    import_hook.call_at_import(lambda: called.append(3), module)

    assert called == [0, 1, 2, 3]  # one that is given after the import is called at once


def test_one_that_fails_is_told_and_the_others_are_called(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    called: list[int] = []
    import_hook.call_at_import(lambda: called.append(int("one")), module)
    import_hook.call_at_import(lambda: called.append(2), module)
    importlib.import_module(module)

    assert called == [2]
    assert "what waited for It's import is NOT in force: invalid literal" in capsys.readouterr().err


def test_an_interrupt_ends_the_import_and_the_next_one_calls_what_is_left(module: str) -> None:
    called: list[str] = []

    def first() -> None:
        called.append("first")
        if len(called) == 1:
            raise KeyboardInterrupt

    import_hook.call_at_import(first, module)
    import_hook.call_at_import(lambda: called.append("second"), module)
    with pytest.raises(KeyboardInterrupt):
        importlib.import_module(module)
    importlib.import_module(module)

    assert called == ["first", "first", "second"]


def test_an_interrupt_after_the_import_leaves_the_module_and_the_function_can_be_given_again(module: str) -> None:
    called: list[str] = []

    def interrupted() -> None:
        called.append("")
        if len(called) == 1:
            raise KeyboardInterrupt

    importlib.import_module(module)
    with pytest.raises(KeyboardInterrupt):
        import_hook.call_at_import(interrupted, module)
    assert module in sys.modules
    import_hook.call_at_import(interrupted, module)

    assert len(called) == 2


class _AllBut:
    """A finder that asks all finders but itself, as some tools do."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        others: list[Any] = [one for one in sys.meta_path if one is not self]
        return next(filter(None, (one.find_spec(name, path, target) for one in others)), None)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(SimpleNamespace(find_module=lambda *_: None), id="an old one, which Python passes over"),
        pytest.param(_AllBut(), id="one that asks all others"),
        pytest.param(type(import_hook._FINDER)(), id="a second of ours, as after a reload"),
    ],
)
@pytest.mark.parametrize("behind", [True, False])
@pytest.mark.filterwarnings("ignore::ImportWarning")  # Python's own, of the old one
def test_other_finders_do_no_harm(module: str, other: object, behind: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    import_hook.call_at_import(lambda: called.append(1), module)
    import_hook.call_at_import(lambda: called.append(2), "absent")
    rest = [one for one in sys.meta_path if one is not import_hook._FINDER]
    monkeypatch.setattr(
        sys, "meta_path", [import_hook._FINDER, *rest, other] if behind else [other, import_hook._FINDER, *rest]
    )
    if behind or not isinstance(other, SimpleNamespace):
        assert importlib.util.find_spec("absent") is None
    importlib.import_module(module)

    assert called == [1]


def test_what_finds_a_module_can_be_copied(module: str) -> None:
    import_hook.call_at_import(lambda: None, module)
    found = importlib.util.find_spec(module)

    assert copy.deepcopy(found).name == module  # type: ignore[union-attr]
