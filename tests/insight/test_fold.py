"""Many arrays become few rows that have them all, and what is large keeps a row of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import MIB
from tfgpu_magic.insight.objects.accounts import MOST, Buffer, fold
from tfgpu_magic.insight.objects.names import NOWHERE

Made: TypeAlias = "tuple[tuple[str, ...], int, str]"
"""An array's path, its size in MiB, and its GPU."""

PATHS = st.lists(st.sampled_from(["a", "b", ".c", "[0]", "[1]"]), max_size=4).map(tuple)


class Row(NamedTuple):
    """A row: the path that its members have in common, how many they are and their MiB."""

    name: str
    members: int
    size: int
    partial: bool
    gpu: str


def rows(made: Sequence[Made]) -> list[Row]:
    """Return the rows of arrays."""
    made = sorted(made, key=lambda one: -one[1])
    places: dict[tuple[str, ...], int] = {}
    chains = [
        [places.setdefault(path[:length], len(places)) for length in range(len(path), 0, -1)] for path, *_ in made
    ]
    found = fold([Buffer(("X", gpu), size * MIB, (at,)) for at, (_, size, gpu) in enumerate(made)], chains)
    names = {place: "".join(path) for path, place in places.items()} | {NOWHERE: ""}
    return [
        Row(names[row.place], len(row.members), sum(made[at][1] for at in row.members), row.partial, gpu)
        for row in found
        for gpu in {made[at][2] for at in row.members}
    ]


def on_one(*made: tuple[tuple[str, ...], int]) -> list[Made]:
    return [(path, size, "GPU:0") for path, size in made]


MANY = [(("xs", f"[{number}]"), 1) for number in range(5000)]
SMALL = [(("model", f".layers[{n}]", f".{part}"), 1) for n in range(30) for part in ("kernel", "bias")]
LARGE = [(("model", ".layers[30]", ".kernel"), 40), (("model", ".optimizer", ".variables[0]"), 40)]


@pytest.mark.parametrize(
    ("made", "written"),
    [
        (on_one(*MANY), [("xs", 5000, 5000)]),
        (on_one(*MANY[:100], (("xs", "[100]"), 50)), [("xs", 100, 100), ("xs[100]", 1, 50)]),
        (
            on_one(*SMALL, *LARGE),
            [("model", 60, 60), ("model.layers[30].kernel", 1, 40), ("model.optimizer.variables[0]", 1, 40)],
        ),
        (
            [(path, size, f"GPU:{number % 2}") for number, (path, size) in enumerate(MANY[:100])],
            [("xs", 50, 50), ("xs", 50, 50)],
        ),
        (on_one(((), 50), *(((), 1) for _ in range(50)), (("x",), 30)), [("", 1, 50), ("", 50, 50), ("x", 1, 30)]),
    ],
    ids=["a list", "a list with a large one", "a model", "on two GPUs", "what nothing leads to"],
)
def test_many_are_one_row_and_what_is_large_has_its_own(made: list[Made], written: list[tuple[str, int, int]]) -> None:
    assert [row[:3] for row in rows(made)] == written


def test_a_row_beside_one_that_it_would_have_is_partial() -> None:
    assert [row.partial for row in rows(on_one(*MANY[:100], (("xs", "[100]"), 50)))] == [True, False]


def test_a_few_arrays_have_a_row_each() -> None:
    assert len(rows(on_one(*(((f"x{number}",), 1) for number in range(MOST))))) == MOST


def test_of_many_names_the_smallest_are_one_row_at_the_end() -> None:
    found = rows(on_one(*(((f"x{number}",), 100 - number) for number in range(50))))

    assert (found[0].name, found[0].size) == ("x0", 100)
    assert (found[-1].name, found[-1].members, found[-1].partial) == ("", 31, True)
    assert len(found) == MOST


def test_a_long_chain_is_folded() -> None:
    chain = tuple("[0]" for _ in range(5000))
    found = rows(on_one(*((("x", *chain[:length], "[1]"), 1) for length in range(0, 5000, 100))))

    assert sum(row.members for row in found) == 50
    assert len(found) <= MOST


@given(st.lists(st.tuples(PATHS, st.integers(1, 1000), st.sampled_from(["GPU:0", "GPU:1"])), max_size=60))
def test_every_array_is_in_one_row_and_there_are_never_many(made: list[Made]) -> None:
    found = rows(made)

    assert sum(row.members for row in found) == len(made)
    assert len(found) <= MOST
    for gpu in {gpu for *_, gpu in made}:
        assert sum(row.size for row in found if row.gpu == gpu) == sum(size for _, size, on in made if on == gpu)
