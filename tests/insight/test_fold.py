"""Many arrays become few rows that have them all, and what is large keeps a row of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import MIB
from tfgpu_magic.insight.objects.accounts import MOST, Buffer, Group, groups
from tfgpu_magic.insight.objects.names import NOWHERE

Path: TypeAlias = "tuple[str, ...]"

SIZES = st.integers(1, 1000)
PATHS = st.lists(st.sampled_from(["a", "b", ".c", "[0]", "[1]"]), max_size=4).map(tuple)
GPUS = st.sampled_from(["GPU:0", "GPU:1"])


class Tree:
    """Memory, and the tree of what leads there, from its names, sizes in MiB and GPUs."""

    def __init__(self, made: Sequence[tuple[Path, int, str]]) -> None:
        self.parents: list[int] = []
        self.paths: dict[int, Path] = {NOWHERE: ()}
        self._places: dict[Path, int] = {(): NOWHERE}
        made = sorted(made, key=lambda one: -one[1])
        self.leaves = [self._place(path) for path, *_ in made]
        self.buffers = [Buffer(("X", gpu), size * MIB, (number,)) for number, (_, size, gpu) in enumerate(made)]

    def _place(self, path: Path) -> int:
        if path not in self._places:
            parent = self._place(path[:-1])
            self._places[path] = len(self.parents)
            self.paths[len(self.parents)] = path
            self.parents.append(parent)
        return self._places[path]

    def rows(self, *, everything: bool = False) -> list[Group]:
        return groups(self.buffers, self.leaves, self.parents, everything=everything)

    def written(self) -> list[tuple[str, int, int]]:
        return [("".join(self.paths[row.place]), len(row.members), row.size // MIB) for row in self.rows()]


def tree(*made: tuple[Path, int]) -> Tree:
    return Tree([(path, size, "GPU:0") for path, size in made])


MANY = [(("xs", f"[{number}]"), 1) for number in range(5000)]
SMALL = [(("model", f".layers[{n}]", f".{part}"), 1) for n in range(30) for part in ("kernel", "bias")]
LARGE = [(("model", ".layers[30]", ".kernel"), 40), (("model", ".optimizer", ".variables[0]"), 40)]


@pytest.mark.parametrize(
    ("made", "written"),
    [
        (tree(*MANY), [("xs", 5000, 5000)]),
        (tree(*MANY[:100], (("xs", "[100]"), 50)), [("xs", 100, 100), ("xs[100]", 1, 50)]),
        (
            tree(*SMALL, *LARGE),
            [("model", 60, 60), ("model.layers[30].kernel", 1, 40), ("model.optimizer.variables[0]", 1, 40)],
        ),
        (
            Tree([(path, size, f"GPU:{number % 2}") for number, (path, size) in enumerate(MANY[:100])]),
            [("xs", 50, 50), ("xs", 50, 50)],
        ),
        (
            tree(((), 50), *(((), 1) for _ in range(50)), (("x",), 30)),
            [("", 1, 50), ("", 50, 50), ("x", 1, 30)],
        ),
    ],
    ids=["a list", "a list with a large one", "a model", "on two GPUs", "what nothing leads to"],
)
def test_many_are_one_row_and_what_is_large_has_its_own(made: Tree, written: list[tuple[str, int, int]]) -> None:
    assert made.written() == written


def test_a_row_beside_one_that_it_would_have_is_partial() -> None:
    assert [row.partial for row in tree(*MANY[:100], (("xs", "[100]"), 50)).rows()] == [True, False]


def test_a_few_arrays_have_a_row_each_and_on_demand_all() -> None:
    assert len(tree(*(((f"x{number}",), 1) for number in range(MOST))).rows()) == MOST
    assert len(tree(*MANY).rows(everything=True)) == 5000


def test_of_many_names_the_smallest_are_one_row_at_the_end() -> None:
    many = tree(*(((f"x{number}",), 100 - number) for number in range(50)))
    found = many.rows()

    assert many.written()[0] == ("x0", 1, 100)
    assert (found[-1].place, len(found[-1].members), found[-1].partial) == (NOWHERE, 31, True)
    assert len(found) == MOST


def test_a_long_chain_is_folded() -> None:
    chain = tuple("[0]" for _ in range(5000))
    found = tree(*((("x", *chain[:length], "[1]"), 1) for length in range(0, 5000, 100))).rows()

    assert sum(len(row.members) for row in found) == 50
    assert len(found) <= MOST


@given(st.lists(st.tuples(PATHS, SIZES, GPUS), max_size=60))
def test_every_array_is_in_one_row_and_there_are_never_many(made: list[tuple[Path, int, str]]) -> None:
    many = Tree(made)
    found = many.rows()

    assert sorted(one.arrays for row in found for one in row.members) == sorted(one.arrays for one in many.buffers)
    assert len(found) <= MOST
    for row in found:
        assert len({one.on for one in row.members}) == 1
        name = many.paths[row.place]
        assert all(many.paths[many.leaves[one.arrays[0]]][: len(name)] == name for one in row.members)
