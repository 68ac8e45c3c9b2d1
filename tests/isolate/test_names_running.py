"""Random cells, run with all of the notebook and with only what they read of it: both must come to the same."""

from __future__ import annotations

import contextlib
import copy
import types
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from tfgpu_magic.isolate.cells.names import names


class Thing:
    """A value that nearly everything can be done with, so that few cells stop early; `number` tells what was done."""

    def __init__(self, number: int) -> None:
        self.number = number % 97

    def __call__(self, *args: object) -> Thing:
        return Thing(self.number + 5 + len(args))

    def __sub__(self, other: object) -> Thing:  # and no `+`, of which texts and lists in a loop grow without end
        return Thing(self.number * 3 + len(shown(other)))

    __rsub__ = __sub__

    def __iter__(self) -> Iterator[Thing]:
        return iter([Thing(self.number + turn) for turn in range(self.number % 3)])

    def __lt__(self, other: object) -> bool:
        return (self.number + len(shown(other))) % 2 == 0

    __gt__ = __lt__

    def __bool__(self) -> bool:
        return self.number % 3 != 0

    def __setitem__(self, key: object, value: object) -> None:
        self.number += 1

    def __repr__(self) -> str:
        return f"Thing({self.number})"


NOTEBOOK = {name: Thing(number) for number, name in enumerate("abcdfghi")}
NAMES = list(NOTEBOOK)
END = "the end"
STEPS = 100
"""How often a cell may `say` something, before it counts as endless."""


class Endless(BaseException):
    """The cell went on for too long."""


class Cell:
    """Writes a random cell; `depth` keeps it small."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def text(self) -> str:
        return "\n".join(self.block(self.random.randint(2, 6), depth=3, loop=False, function=False))

    def name(self) -> str:
        return self.random.choice(NAMES)

    def value(self, depth: int = 2) -> str:
        def one() -> str:
            return self.value(depth - 1) if depth else self.name()

        name = self.name
        kinds: list[Callable[[], str]] = [
            lambda: f"Thing({self.random.randint(0, 9)})",
            name,
            name,
            lambda: f"say({name()})",
            lambda: f"[{one()}, {one()}]",
            lambda: f"{{{name()}: {one()}, 'k': {one()}}}",
            lambda: f"({name()} := {one()})",
            lambda: f"({one()} and {one()})",
            lambda: f"({one()} if {one()} else {one()})",
            lambda: f"(0 < {one()} < {one()})",
            lambda: f"(lambda {name()}={one()}: say({one()}))",
            lambda: f"(lambda: {one()})()",
            lambda: f"say({name()})()",
            lambda: f"[{one()} for {name()} in {one()} if {one()}]",
            lambda: f"list({one()} for {name()} in [Thing(1), Thing(2)] for {name()} in {one()})[:3]",
            lambda: f"{{{name()}: {one()} for {name()} in [Thing(1), Thing(2)]}}",
            lambda: f"[lambda: {name()} for {name()} in [1]][0]()",
            lambda: f"f'{{shown({name()}):.9}} {{shown({name()}):.{{len(shown({name()})) % 9}}}}'",
        ]
        return self.random.choice(kinds)()

    def block(self, lines: int, *, depth: int, loop: bool, function: bool) -> list[str]:
        made: list[str] = []
        for _ in range(lines):
            made += self.statement(depth, loop=loop, function=function)
        return made

    def statement(self, depth: int, *, loop: bool, function: bool) -> list[str]:
        name, value = self.name, self.value
        simple: list[Callable[[], str]] = [
            lambda: f"say({value()})",
            lambda: f"{name()} = {value()}",
            lambda: f"{name()} = {name()} = {value()}",
            lambda: f"{name()}, {name()} = {value()}, {value()}",
            lambda: f"{name()} -= {value()}",
            lambda: f"{name()}[0] = {value()}",
            lambda: f"{name()}: {name()} = {value()}",
            lambda: f"{name()}: {name()}",
            lambda: f"del {name()}",
            lambda: f"import math as {name()}",
            lambda: f"assert {value()}, {value()}",
            lambda: "from math import *",
            *([lambda: "break", lambda: "continue"] if loop else []),
            *([lambda: f"return {value()}"] if function else []),
            lambda: self.random.choice(["pass", "pass", "raise ValueError(1)"]),
        ]
        if depth == 0 or self.random.random() < 0.5:
            return [self.random.choice(simple)()]

        def block(*first: str, loop: bool = loop, function: bool = function) -> list[str]:
            inner = self.block(self.random.randint(1, 3), depth=depth - 1, loop=loop, function=function)
            return [f"    {line}" for line in [*first, *inner]]

        def last() -> list[str]:
            return block(loop=False, function=False)  # `break` there would go on after `Endless`

        error = self.random.choice(["NameError", "Exception", "(TypeError, ValueError)"])
        named = f"def {name()}({self.random.choice(['', '*a', 'a=' + value(), 'c=Thing(1), *, i=c'])}):"
        shared = f"global {name()}" if "()" in named else "pass"
        kinds: list[Callable[[], list[str]]] = [
            lambda: [f"if {value()}:", *block(), "else:", *block()],
            lambda: [f"if {value()}:", *block()],
            lambda: [f"for {name()} in {value()}:", *block("say('turn')", loop=True), "else:", *block()],
            lambda: [f"for {name()} in [Thing(1), Thing(2)]:", *block("say('turn')", loop=True)],
            lambda: ["while True:", *block("say('turn')", loop=True), f"    if {value()}: break"],
            lambda: [f"while {value()}:", *block("say('turn')", loop=True)],
            lambda: ["try:", *block(), f"except {error} as {name()}:", *block(), "else:", *block()],
            lambda: ["try:", *block(), "except Exception:", *block(), "finally:", *last()],
            lambda: ["try:", *block(), "finally:", *last()],
            lambda: [f"with suppress(Exception) as {name()}:", *block()],
            lambda: [f"with nullcontext({value()}) as {name()}:", *block()],
            lambda: [f"match {value()}:", f"    case [{name()}, *_]:", *(f"    {line}" for line in block())],
            lambda: [f"match {value()}:", "    case 1: pass", f"    case {name()}: say({value()})"],
            lambda: [named, *block("say('called')", shared, loop=False, function=True)],
            lambda: [f"class {name()}:", *block(shared, loop=False, function=False)],
            lambda: [f"@{name()}", f"def {name()}(): pass"],
        ]
        return self.random.choice(kinds)()


def run(cell: types.CodeType, notebook: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Return what a cell says, its end or its error last, and the names that it leaves."""
    said: list[str] = []

    def say(value: object) -> object:
        said.append(shown(value))
        if len(said) > STEPS:
            raise Endless
        return value

    tools = {
        "say": say,
        "Thing": Thing,
        "shown": shown,
        "suppress": contextlib.suppress,
        "nullcontext": contextlib.nullcontext,
    }
    space = {**tools, **notebook}
    try:
        exec(cell, space)
        said.append(END)
    except (Exception, Endless) as error:
        said.append(f"{type(error).__name__}: {error if isinstance(error, NameError) else ''}")
    return said, {name: value for name, value in space.items() if name in NAMES}


def shown(value: object, depth: int = 4) -> str:
    """Return a value as text that is the same in both runs: without addresses, and finite where a list holds itself."""
    if isinstance(value, list | dict) and depth:
        parts = value if isinstance(value, list) else [part for item in value.items() for part in item]
        return f"{type(value).__name__}({', '.join(shown(part, depth - 1) for part in parts)})"
    return repr(value) if isinstance(value, Thing | int | float | str | None) else type(value).__name__


def compiled(text: str) -> types.CodeType | None:
    try:
        return compile(text, "<cell>", "exec", dont_inherit=True)
    except SyntaxError:
        return None


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("seed", range(12))
def test_a_cell_does_the_same_with_only_what_it_reads(seed: int) -> None:
    texts = [Cell(100_000 * seed + each).text() for each in range(150)]
    cells = [(text, code) for text in texts if (code := compiled(text))]
    for text, code in cells:
        told = names(text)
        whole, part = copy.deepcopy(NOTEBOOK), copy.deepcopy(NOTEBOOK)
        sent = {name: value for name, value in part.items() if name in told.reads}

        said, left = run(code, whole)
        said_there, left_there = run(code, sent)

        unsent = {name: value for name, value in NOTEBOOK.items() if name not in told.reads}
        unseen = {name: value for name, value in unsent.items() if name not in left_there and name in left}
        assert said == said_there, text
        assert {n: shown(v) for n, v in left.items()} == {n: shown(v) for n, v in {**unseen, **left_there}.items()}, (
            text
        )
    assert len(cells) > 30
