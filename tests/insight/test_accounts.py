"""What shares memory counts once, and what is in use beyond the arrays is known as a rest."""

from __future__ import annotations

from dataclasses import replace

from tests.insight.made import holding
from tests.sizes import MIB
from tfgpu_magic.insight.accounts import accounts, rested, settled, shared
from tfgpu_magic.insight.names import Name, Scope

ON = ("TensorFlow", "GPU:0")


def test_arrays_at_places_of_their_own_stay_what_they_are() -> None:
    arrays = [holding("x", MIB, 0), holding("y", MIB, MIB), holding("v", MIB, None), holding("w", MIB, None)]

    assert sorted(one.name.expression for one in shared(arrays)) == ["v", "w", "x", "y"]


def test_a_view_joins_its_array_and_gives_it_its_name() -> None:
    (one,) = shared([holding("row", 1024, 4096), holding("x", MIB, 0)])

    assert (one.name.expression, [other.expression for other in one.others], one.size) == ("x", ["row"], MIB)


def test_a_view_at_the_beginning_is_not_taken_for_the_array() -> None:
    (one,) = shared([holding("head", 1024, 0), holding("x", MIB, 0)])

    assert (one.name.expression, one.size) == ("x", MIB)


def test_of_two_that_are_the_same_the_first_gives_the_name() -> None:
    (one,) = shared([holding("x", MIB, 0), holding("y", MIB, 0)])

    assert (one.name.expression, [other.expression for other in one.others]) == ("x", ["y"])


def test_a_named_view_names_an_array_that_no_name_leads_to() -> None:
    (one,) = shared([holding("row", 1024, 0), holding("", MIB, 0)])

    assert (one.name.expression, one.others, one.size) == ("row", (), MIB)


def test_parts_that_overlap_take_what_they_cover_together() -> None:
    (one,) = shared([holding("front", 6 * MIB, 0), holding("back", 6 * MIB, 4 * MIB)])

    assert one.size == 10 * MIB


def test_a_view_whose_size_is_rounded_up_does_not_reach_the_next_array() -> None:
    arrays = shared([holding("x", 1024, 0), holding("tail", 1024, 4), holding("next", 1024, 1024)])

    assert [(one.name.expression, one.size) for one in arrays] == [("x", 1024), ("next", 1024)]


def test_the_same_address_on_another_gpu_is_another_place() -> None:
    assert len(shared([holding("x", MIB, 0), holding("y", MIB, 0, device="GPU:1")])) == 2


def test_a_tensor_counts_as_its_variables_value_where_both_cannot_be_there() -> None:
    both = [holding("x", MIB, 0), holding("v", MIB, None, what="variable")]

    (one,) = settled(both, {ON: MIB})
    assert (one.name.expression, [other.expression for other in one.others]) == ("v", ["x"])
    assert len(settled(both, {ON: 2 * MIB})) == 2
    assert len(settled(both, {})) == 2


def test_an_iterator_takes_what_no_array_does() -> None:
    unsized = [replace(holding(name, 0, None, what="dataset iterator"), rest=True) for name in ("it", "again")]
    x, it = rested([holding("x", MIB, 0), *unsized], {ON: 3 * MIB})

    assert (x.size, it.name.expression, it.size) == (MIB, "it", 2 * MIB)
    assert [one.expression for one in it.others] == ["again"]
    assert rested(unsized, {ON: 0}) == []


def test_no_more_tensors_count_as_values_than_the_figure_asks() -> None:
    arrays = [holding(name, MIB, at * MIB) for at, name in enumerate("xyz")]
    arrays += [holding(name, MIB, None, what="variable") for name in "uvw"]

    assert [len(settled(arrays, {ON: size * MIB})) for size in (6, 5, 4, 3)] == [6, 5, 4, 3]


def test_a_tensor_of_another_type_or_size_is_no_variables_value() -> None:
    arrays = [holding("x", MIB, 0, dtype="int64"), holding("y", 2 * MIB, MIB), holding("v", MIB, None, what="variable")]

    assert len(settled(arrays, {ON: MIB})) == 3


def test_the_rest_is_what_is_in_use_beyond_the_arrays() -> None:
    arrays = [holding("x", MIB, 0), holding("y", MIB, 0, framework="JAX", device="cuda:0")]
    first, second, third = accounts(arrays, {ON: 3 * MIB, ("TensorFlow", "GPU:1"): MIB, ("TensorFlow", "GPU:2"): 0})

    assert (first.framework, first.in_use, first.unaccounted) == ("JAX", None, None)
    assert (second.device, second.found, second.unaccounted) == ("GPU:0", MIB, 2 * MIB)
    assert (third.device, third.found, third.unaccounted) == ("GPU:1", 0, MIB)


def test_scopes_tell_names_apart() -> None:
    here, there = Name(("x",)), Name(("x",), (Scope("function", "train"),))

    assert here != there
    assert here.expression == there.expression == "x"
