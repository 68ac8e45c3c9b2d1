"""Many arrays become few rows that have them all, and what is large keeps a row of its own."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.insight.made import holding
from tests.sizes import MIB
from tfgpu_magic.insight.accounts import Holding
from tfgpu_magic.insight.fold import MOST, Row, rows

SIZES = st.integers(1, 1000)
PATHS = st.lists(st.sampled_from(["a", "b", ".c", "[0]", "[1]"]), max_size=4).map(tuple)


def written(found: Sequence[Row]) -> list[tuple[str, int, int]]:
    return [(row.name.expression, len(row.members), row.size // MIB) for row in found]


def test_a_few_arrays_have_a_row_each() -> None:
    arrays = [holding(f"x{number}", MIB) for number in range(MOST)]

    assert len(rows(arrays)) == MOST


def test_a_list_of_many_is_one_row() -> None:
    arrays = [holding(("xs", f"[{number}]"), MIB) for number in range(5000)]

    assert written(rows(arrays)) == [("xs", 5000, 5000)]


def test_what_is_large_in_a_list_of_many_has_its_row() -> None:
    arrays = [holding(("xs", f"[{number}]"), MIB) for number in range(100)] + [holding(("xs", "[100]"), 50 * MIB)]

    assert written(rows(arrays)) == [("xs", 100, 100), ("xs[100]", 1, 50)]


def test_a_model_is_shown_by_its_large_layers() -> None:
    arrays = [holding(("model", f".layers[{n}]", f".{part}"), MIB) for n in range(30) for part in ("kernel", "bias")]
    arrays.append(holding(("model", ".layers[30]", ".kernel"), 40 * MIB))
    arrays.append(holding(("model", ".optimizer", ".variables[0]"), 40 * MIB))

    assert written(rows(arrays)) == [
        ("model", 60, 60),
        ("model.layers[30].kernel", 1, 40),
        ("model.optimizer.variables[0]", 1, 40),
    ]


def test_of_many_names_the_smallest_are_one_row_at_the_end() -> None:
    arrays = [holding(f"x{number}", (100 - number) * MIB) for number in range(50)]
    found = rows(arrays)

    assert written(found)[0] == ("x0", 1, 100)
    assert (found[-1].name.expression, len(found[-1].members), found[-1].rest) == ("", 31, True)
    assert len(found) == MOST


def test_on_demand_each_has_its_row() -> None:
    arrays = [holding(("xs", f"[{number}]"), MIB) for number in range(5000)]

    assert len(rows(arrays, everything=True)) == 5000


@given(st.lists(st.tuples(PATHS, SIZES), max_size=60))
def test_every_array_is_in_one_row_and_there_are_never_many(made: list[tuple[tuple[str, ...], int]]) -> None:
    arrays: list[Holding] = [holding(path, size) for path, size in made]
    found = rows(arrays)

    assert sorted(id(one) for row in found for one in row.members) == sorted(map(id, arrays))
    assert len(found) <= MOST
    assert all(one.name.parts[: len(row.name.parts)] == row.name.parts for row in found for one in row.members)
