"""What `%tf_gpu tensors` and `%tf_gpu free` say, from inventories and outcomes that are made up."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.insight.cases import holding
from tests.sizes import GIB, MIB
from tfgpu_magic.frameworks.array import Array
from tfgpu_magic.insight.freeing import Freed
from tfgpu_magic.insight.measurement import HeldChange, Measurement, PoolUse
from tfgpu_magic.insight.objects import search
from tfgpu_magic.insight.objects.accounts import Account
from tfgpu_magic.insight.objects.names import Name
from tfgpu_magic.insight.objects.search import arrays_reached_from
from tfgpu_magic.insight.objects.tensors import Tensors, name_text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (Name(("model", ".layers[2]", ".kernel")), "model.layers[2].kernel"),
        (Name(("f",), inner=True), "f (inside)"),
        (Name(("x",), ("in train()", "kept by the last error")), "x, in train(), kept by the last error"),
        (Name((), ("in the cell", "kept by the last error")), "in the cell, kept by the last error"),
        (Name(), "no name leads to it"),
        (Name(("x", "['a\u202eb']")), "x['a?b']"),
    ],
)
def test_a_name_is_written_as_people_say_it(name: Name, text: str) -> None:
    assert name_text(name) == text


def test_what_no_array_takes_is_a_row_and_explained() -> None:
    taken = Tensors(
        holdings=(holding("x", MIB),),
        accounts=(Account(framework="TensorFlow", device="GPU:0", in_use=9 * MIB, found=MIB),),
    )

    *lines, explained = repr(taken).splitlines()
    assert explained.startswith("What is unaccounted has no object of Python's")
    assert lines == [
        " Name   Size  What                   On",
        " x     1 MiB  tensor float32 262144  GPU:0",
        "       8 MiB  unaccounted            GPU:0",
        "TensorFlow has 9 MiB in use on GPU:0; the arrays take 1 MiB of it.",
    ]


def test_arrays_that_come_to_more_than_is_in_use_are_explained() -> None:
    account = Account(framework="TensorFlow", device="GPU:0", in_use=8 * MIB, found=16 * MIB)
    taken = Tensors(holdings=(holding("v", 8 * MIB, what="variable"), holding("x", 8 * MIB)), accounts=(account,))

    assert repr(taken).splitlines()[-2:] == [
        "TensorFlow has 8 MiB in use on GPU:0, 8 MiB less than the arrays come to.",
        "A variable does not tell where its memory is: a tensor that shares it counts beside it.",
    ]


def test_several_frameworks_are_told_apart() -> None:
    taken = Tensors(
        holdings=(holding("x", MIB), holding("y", MIB, framework="JAX", device="cuda:0")),
        accounts=(
            Account(framework="JAX", device="cuda:0", in_use=None, found=MIB),
            Account(framework="TensorFlow", device="GPU:0", in_use=MIB, found=MIB),
        ),
    )
    text = repr(taken)

    assert "TensorFlow GPU:0" in text
    assert "JAX cuda:0" in text
    assert "JAX does not tell how much it has in use on cuda:0." in text
    assert "unaccounted" not in text


def test_html_has_the_rows_of_the_text_and_escapes_names() -> None:
    assert "more objects than were looked through" in repr(Tensors(gave_up=True))
    html = Tensors(holdings=(holding("x['<b>']", MIB),))._repr_html_()

    assert '<th scope="row" class="tfgpu-name">x[&#x27;&lt;b&gt;&#x27;]</th>' in html
    assert '<td class="tfgpu-n">1 MiB</td>' in html


def measured(in_use: dict[tuple[str, str], tuple[int, int]], held: dict[str, tuple[int, int]] | None = None) -> Any:
    """Return a measurement with what was in use of pools, and held of GPUs, before and after."""
    return Measurement(
        seconds=0.0,
        pools=tuple(PoolUse(*on, "GPU-0", *sizes, peak=sizes[0]) for on, sizes in in_use.items()),
        gpus=tuple(HeldChange(gpu=gpu, uuid=None, before=a, after=b) for gpu, (a, b) in (held or {}).items()),
    )


def test_what_became_free_and_what_went_back_are_said_apart() -> None:
    in_use = {("PyTorch", "cuda:0"): (3 * GIB, GIB), ("TensorFlow", "GPU:0"): (0, 0)}
    outcome = Freed(names=(), measured=measured(in_use, {"0": (4 * GIB, 2 * GIB)}))

    assert repr(outcome).splitlines() == [
        "PyTorch on cuda:0: 2 GiB became free, and 1 GiB are still in use.",
        "2 GiB of GPU 0 went back to the driver, and this process still holds 2 GiB.",
        "`%tf_gpu tensors` shows what holds the rest.",
    ]
    assert outcome.to_driver == outcome.in_pools == 2 * GIB


@pytest.mark.parametrize(("given", "kept"), [({}, True), ({"PyTorch": GIB}, True), ({"TensorFlow": 0}, False)])
def test_that_tensorflow_keeps_it_is_said_unless_it_gives_back(given: dict[str, int], kept: bool) -> None:
    held = {"0": (2 * GIB, 2 * GIB - sum(given.values()))}
    outcome = Freed(names=(), measured=measured({("TensorFlow", "GPU:0"): (GIB, 0)}, held), given=given)

    assert ("TensorFlow keeps what became free" in repr(outcome)) == kept


def test_names_with_more_below_them_than_is_looked_through_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfgpu_magic.insight.objects.walk.MOST", 100)
    arrays = [("X", Array([], "tensor", "float32", (1,), 4, "GPU:0"))]
    monkeypatch.setattr(search, "_arrays", lambda: arrays)

    assert arrays_reached_from([[[]]]) == (set(), False)
    assert arrays_reached_from([[[] for _ in range(200)]]) == (set(), True)
    assert "led to more objects than were looked through" in repr(
        Freed(names=("x",), measured=measured({}), gave_up=True)
    )


def test_a_driver_that_does_not_tell_is_said() -> None:
    outcome = Freed(names=(), measured=measured({("TensorFlow", "GPU:0"): (GIB, 0)}))

    assert "What went back to the driver is not known" in repr(outcome)
    assert outcome.to_driver is None


def test_where_the_driver_does_not_tell_the_frameworks_own_account_counts() -> None:
    given = {"TensorFlow": 2 * GIB, "PyTorch": 0}
    outcome = Freed(names=(), measured=measured({("TensorFlow", "GPU:0"): (GIB, 0)}), given=given)

    (free, back) = repr(outcome).splitlines()

    assert free == "TensorFlow on GPU:0: 1 GiB became free, and nothing is in use any more."
    assert back.startswith("TensorFlow gave 2 GiB and PyTorch gave nothing back to the driver, which does not tell")
    assert outcome.to_driver == 2 * GIB


def test_several_arrays_are_counted_and_how_to_see_each_is_said() -> None:
    together = [
        holding(("model",), 60 * MIB, what="variable", count=60, partial=True),
        holding("xs", 5 * MIB, count=5000),
        holding("", MIB, count=2),
        holding("", MIB, what="array", count=1200, partial=True),
        holding("x", MIB),
    ]
    *lines, every = repr(Tensors(holdings=tuple(together))).splitlines()

    assert [re.split(" {2,}", line.strip()) for line in lines[1:]] == [
        ["model", "60 MiB", "60 other variables", "GPU:0"],
        ["xs", "5 MiB", "5,000 tensors", "GPU:0"],
        ["no name leads to it", "1 MiB", "2 tensors", "GPU:0"],
        ["others", "1 MiB", "1,200 other arrays", "GPU:0"],
        ["x", "1 MiB", "tensor float32 262144", "GPU:0"],
    ]
    assert every == "`%tf_gpu tensors --all` shows each of the 6,263 arrays."


def test_what_allocators_round_up_has_no_row() -> None:
    account = Account(framework="TensorFlow", device="GPU:0", in_use=GIB, found=GIB - MIB)
    taken = Tensors(holdings=(holding("x", GIB - MIB),), accounts=(account,))

    assert " unaccounted " not in repr(taken)
